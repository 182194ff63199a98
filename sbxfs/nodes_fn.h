/* SPDX-License-Identifier: MIT */
/* Functions of the rows of nodes.def and of the directories, each where its resource is. */
#ifndef SBXFS_NODES_FN_H
#define SBXFS_NODES_FN_H

#include "sbxfs/nodes.h"

#define READ(name) int read_##name(struct req *q, const struct spot *s, struct text *t)
#define APPLY(name) \
	int apply_##name(struct req *q, const struct spot *s, const char *value, size_t len, bool append)

/* node_root.c, node_info.c */
READ(readme);
READ(capabilities);
READ(error);
READ(errors);
READ(create);
READ(created);
READ(stats);
READ(node);
READ(by_id);
READ(by_label);
APPLY(create);
APPLY(root_ctl);
APPLY(cordoned);
/* node_box.c, node_set.c */
READ(box_field);
READ(box_info);
READ(box_list);
READ(label);
READ(network);
READ(box_doc);
READ(box_volumes);
READ(home);
READ(program);
READ(exec);
APPLY(name);
APPLY(box_ctl);
APPLY(box_int);
APPLY(box_str);
APPLY(label);
APPLY(network);
APPLY(policy);
APPLY(box_doc);
/* node_snap.c */
READ(snap);
READ(snap_link);
READ(snap_fork);
READ(snap_progress);
READ(schedule);
APPLY(snap_fork);
APPLY(schedule);
/* node_res.c */
READ(image);
READ(volume);
APPLY(image_ctl);
/* node_metrics.c */
READ(metrics);
/* node_port.c */
READ(port_socket);
READ(port_address);
READ(port_info);
APPLY(port_ctl);
/* node_run.c */
READ(last);
APPLY(run);
/* node_proc.c */
READ(proc_link);
READ(proc_field);
APPLY(proc_cmd);
APPLY(proc_argv);
APPLY(proc_cwd);
APPLY(proc_env);
APPLY(proc_tty);
APPLY(proc_stdin);
APPLY(proc_ctl);
/* node_draft.c */
READ(draft);
READ(draft_label);
READ(draft_net);
APPLY(draft);
APPLY(draft_env);
APPLY(draft_label);
APPLY(draft_net);
APPLY(draft_schedule);
APPLY(draft_volumes);
/* verbs.c */
READ(verbs);

extern const struct dir dir_root, dir_new, dir_by_id, dir_by_label, dir_label_key, dir_label_value,
	dir_ended, dir_ended_box, dir_box, dir_bin, dir_processes, dir_ended_processes, dir_labels,
	dir_draft_labels, dir_proc, dir_snapshots, dir_box_snaps, dir_snap, dir_images, dir_volumes,
	dir_ports;

#endif
