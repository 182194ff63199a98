/* SPDX-License-Identifier: MIT */
/* sbx-worker: the one process that touches a sandbox's files for the API. How it is started:
 *
 *   argv  sbx-worker UID GID MODE      UID, GID: decimal, owner of new files (1001 1001);
 *                                      MODE: "linux" or "fake"
 *   fd 3  control socket (SOCK_SEQPACKET, or SOCK_STREAM): the shim sends one byte with one
 *         descriptor by SCM_RIGHTS for each accepted FILES connection, after hello and hello_ok
 *         were exchanged; the worker speaks proto/files.h on it. End of file ends the worker.
 *   fd 4  the guest root, an O_PATH|O_DIRECTORY descriptor. Not open: "/" of the worker's own mount
 *         namespace is used.
 *   0 to 2 are /dev/null or a log; every other descriptor is closed by the worker. The environment
 *         is not looked at.
 *
 * linux: started in the guest's mount and user namespaces as guest root with chown, dac_override,
 * dac_read_search, fowner, fsetid, setfcap, setuid, setgid, setpcap (the last three only until new
 * files are given to UID:GID by file-system ids), outside the guest's pid namespace and cgroup, so
 * that it serves while the guest is frozen. It needs no /proc. RLIMIT_NOFILE should be 8192 or
 * more. fake: started as the current user, in any directory; new files keep the current user as
 * their owner and a chown that is not permitted succeeds without effect. Exit status: 0 at the end
 * of the control socket, 1 when it could not start. */
#ifndef SANDBOXD_WORKER_WORKER_H
#define SANDBOXD_WORKER_WORKER_H

#define WORKER_CONTROL_FD 3
#define WORKER_ROOT_FD    4
#define WORKER_FD_MIN     5 /* first descriptor that the worker closes at its start */

#endif
