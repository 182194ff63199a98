# SPDX-License-Identifier: MIT
# sshfs for the benches, in two ways: over ssh and an sshd of our own on loopback, as people use it (sshfs),
# and straight on an SFTP server at the other end of a socket pair, which is the fastest there is (sftp).
ssh_sftp=/usr/lib/openssh/sftp-server

ssh_have() {
	command -v sshfs >/dev/null && [ -x $ssh_sftp ] && return 0
	echo "bench: sshfs is not installed: its columns stay empty" >&2
	return 1
}
# The served folders lie in $ssh_root, or in DIR.
# An sshd that knows one key, its port in $ssh_port and its number in $ssh_pid; 1: there is none here.
# The package is not installed by scripts/deps: it would start a service that lets people in.
ssh_start() { # DIR
	ssh_at=$1
	mkdir -p "${ssh_root:=$1}"/root-{sshfs,sftp}
	[ -x /usr/sbin/sshd ] || { echo "bench: no sshd (Debian's openssh-server): no sshfs over ssh" >&2; return 1; }
	ssh_port=$((20000 + RANDOM % 20000))
	ssh-keygen -q -t ed25519 -N '' -f "$1/ssh-host" && ssh-keygen -q -t ed25519 -N '' -f "$1/ssh-key" || return 1
	cat >"$1/sshd.conf" <<-S
		ListenAddress 127.0.0.1:$ssh_port
		HostKey $1/ssh-host
		AuthorizedKeysFile $1/ssh-key.pub
		StrictModes no
		PermitRootLogin prohibit-password
		PasswordAuthentication no
		UsePAM no
		PidFile none
		Subsystem sftp $ssh_sftp
	S
	mkdir -p -m 755 /run/sshd
	/usr/sbin/sshd -D -f "$1/sshd.conf" 2>>"$1/log" &
	ssh_pid=$!
	pids+=("$ssh_pid")
	for _ in $(seq 100); do
		(: <"/dev/tcp/127.0.0.1/$ssh_port") 2>/dev/null && return 0
		sleep 0.05
	done
	return 1
}
# DELAY: a command with which every byte comes late.
ssh_mount() { # sshfs|sftp|far DIR [DELAY]
	local by="ssh -F none -p $ssh_port -i $ssh_at/ssh-key -o UserKnownHostsFile=/dev/null"
	by="$by -o StrictHostKeyChecking=no -o LogLevel=ERROR -o IdentitiesOnly=yes"
	if [ "$1" = sftp ]; then
		printf '#!/bin/sh\nexec %s\n' $ssh_sftp >"$ssh_at/by-$1"
	elif [ "$1" = sshfs ]; then
		printf '#!/bin/sh\nexec %s "$@"\n' "$by" >"$ssh_at/by-$1"
	elif [ -n "$ssh_port" ]; then
		printf '#!/bin/sh\nexec %s -o "ProxyCommand=%s -- socat - TCP:127.0.0.1:%s" "$@"\n' \
			"$by" "$3" "$ssh_port" >"$ssh_at/by-$1"
	else
		printf '#!/bin/sh\nexec %s -- %s\n' "$3" $ssh_sftp >"$ssh_at/by-$1"
	fi
	chmod +x "$ssh_at/by-$1"
	local root=$ssh_root/root-$1
	[ "$1" != far ] || root=$ssh_root/root-${ssh_port:+sshfs}
	[ "$root" != "$ssh_root/root-" ] || root=$ssh_root/root-sftp
	sshfs -o ssh_command="$ssh_at/by-$1" "root@127.0.0.1:$root" "$2"
}
