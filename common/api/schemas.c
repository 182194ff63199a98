/* SPDX-License-Identifier: MIT */
/* The field tables of the request bodies. Value rules that need more than a type and a range are the
 * core's, in the contract's order. */
#include "common/api/types.h"

const struct field network_fields[] = {
	FIELD(network_body, mode, F_STR),
	FIELD_HAS(network_body, allow, F_STRS),
	FIELD(network_body, deny, F_STRS),
	FIELD(network_body, groups, F_ANY),
	FIELDS_END,
};
const struct field volume_mount_fields[] = {
	FIELD(volume_mount_body, name, F_STR),
	FIELD(volume_mount_body, path, F_STR),
	FIELD(volume_mount_body, read_only, F_BOOL),
	FIELDS_END,
};
const struct field registry_login_fields[] = {
	FIELD(registry_login_body, registry, F_STR),
	FIELD(registry_login_body, username, F_STR),
	FIELD(registry_login_body, password, F_STR),
	FIELDS_END,
};
const struct field metrics_export_fields[] = {
	FIELD(metrics_export_body, endpoint, F_STR),
	FIELD_HAS(metrics_export_body, interval_secs, F_INT),
	FIELD(metrics_export_body, headers, F_MAP),
	FIELD(metrics_export_body, header_secrets, F_ANY),
	FIELDS_END,
};
const struct field create_fields[] = {
	FIELD(create_body, name, F_STR),
	FIELD(create_body, image, F_STR),
	FIELD(create_body, cpus, F_NUM),
	FIELD(create_body, memory_mb, F_INT),
	FIELD(create_body, disk_mb, F_INT),
	FIELD(create_body, env, F_MAP),
	FIELD_HAS(create_body, network, F_OBJ, .sub = network_fields),
	FIELD(create_body, idle_timeout_secs, F_INT),
	FIELD(create_body, idle_action, F_STR),
	FIELD(create_body, lifetime_secs, F_INT),
	FIELD(create_body, snapshot_id, F_STR),
	FIELD(create_body, snapshot_every_secs, F_INT),
	FIELD(create_body, snapshot_keep, F_INT),
	FIELD(create_body, labels, F_MAP),
	FIELD(create_body, volumes, F_OBJS, .sub = volume_mount_fields,
		.size = sizeof(struct volume_mount_body)),
	FIELD_HAS(create_body, registry_login, F_OBJ, .sub = registry_login_fields),
	FIELD_HAS(create_body, metrics_export, F_OBJ, .sub = metrics_export_fields),
	FIELD(create_body, gpus, F_INT),
	FIELDS_END,
};
const struct field update_fields[] = {
	FIELD_HAS(update_body, name, F_STR),
	FIELD_HAS(update_body, labels, F_MAP),
	FIELD_HAS(update_body, network, F_OBJ, .sub = network_fields),
	FIELD_HAS(update_body, idle_timeout_secs, F_INT),
	FIELD_HAS(update_body, idle_action, F_STR),
	FIELD_HAS(update_body, lifetime_secs, F_INT),
	FIELD_HAS(update_body, metrics_export, F_OBJ, .sub = metrics_export_fields),
	FIELDS_END,
};
const struct field process_fields[] = {
	FIELD(process_body, argv, F_STRS),
	FIELD(process_body, env, F_MAP),
	FIELD(process_body, cwd, F_STR),
	{ .name = "stdin", .type = F_B64, .offset = offsetof(struct process_body, stdin_data),
		.has = offsetof(struct process_body, has_stdin) },
	FIELD(process_body, timeout_secs, F_INT),
	FIELD(process_body, tty, F_BOOL),
	FIELD(process_body, rows, F_INT, .min = 0, .max = 65535),
	FIELD(process_body, cols, F_INT, .min = 0, .max = 65535),
	FIELD(process_body, name, F_STR),
	FIELDS_END,
};
const struct field signal_fields[] = {
	FIELD(signal_body, signal, F_STR),
	FIELDS_END,
};
const struct field cordon_fields[] = {
	FIELD_HAS(cordon_body, cordoned, F_BOOL),
	FIELDS_END,
};
const struct field schedule_fields[] = {
	FIELD(schedule_body, every_secs, F_INT),
	FIELD(schedule_body, keep, F_INT),
	FIELDS_END,
};
const struct field volume_fields[] = {
	FIELD(volume_body, name, F_STR),
	FIELD(volume_body, size_mb, F_INT),
	FIELDS_END,
};
const struct field image_fields[] = {
	FIELD(image_body, image, F_STR),
	FIELDS_END,
};
const struct field fs_stat_fields[] = {
	FIELD(fs_stat_body, paths, F_STRS, .required = true, .max = 1000),
	FIELD(fs_stat_body, follow, F_BOOL),
	FIELDS_END,
};
const struct field fs_open_fields[] = {
	FIELD(fs_open_body, path, F_STR),
	FIELD(fs_open_body, path_b64, F_STR),
	FIELD(fs_open_body, flags, F_STRS, .required = true, .max = 16),
	FIELD_HAS(fs_open_body, mode, F_MODE),
	{ .name = "inline", .type = F_INT, .offset = offsetof(struct fs_open_body, want_inline),
		.has = SIZE_MAX, .min = 0, .max = 65536 },
	FIELDS_END,
};
const struct field fs_lock_fields[] = {
	FIELD(fs_lock_body, type, F_STR, .required = true, .max = 8),
	FIELD(fs_lock_body, offset, F_INT, .min = 0, .max = INT64_MAX),
	FIELD(fs_lock_body, length, F_INT, .min = 0, .max = INT64_MAX),
	FIELD(fs_lock_body, owner, F_INT, .min = 0, .max = INT64_MAX),
	FIELD(fs_lock_body, who, F_INT, .min = 0, .max = INT32_MAX),
	FIELD(fs_lock_body, flock, F_BOOL),
	FIELD(fs_lock_body, test, F_BOOL),
	FIELDS_END,
};
const struct field fs_sync_fields[] = {
	FIELD(fs_sync_body, data_only, F_BOOL),
	FIELDS_END,
};
const struct field fs_ops_fields[] = {
	FIELD(fs_ops_body, ops, F_ANY, .required = true),
	FIELD_HAS(fs_ops_body, stop, F_BOOL),
	FIELDS_END,
};
