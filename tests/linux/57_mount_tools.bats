#!/usr/bin/env bats
# SPDX-License-Identifier: MIT
# Editors and tools as people use them, on the files of a sandbox; what each has made is looked at inside.
load ../fs/helper

setup_file() {
	[ "$(id -u)" = 0 ] || return 0
	export SBX_BACKEND=linux TMPDIR=/var/tmp
	fs_start
}
teardown_file() { fs_stop; }
setup() {
	[ "$(id -u)" = 0 ] || skip "needs root"
	fs_setup
	export LC_ALL=C TERM=vt100 H T
	W=$H/t$BATS_TEST_NUMBER
	mkdir "$W"
	cd "$W" || return 1
}
in_guest() { guest "cd /sandbox/home/t$BATS_TEST_NUMBER && $1"; }
# Names left over by an editor's way of saving.
only() { same "$(find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ')" "$1"; }
by() { python3 "$BATS_TEST_DIRNAME/tools.py" "$@"; }

@test "vim: swap file, backups, in place and by renaming" {
	for how in yes no auto; do
		printf 'one\ntwo\n' >v
		chmod 640 v
		vim.tiny -u NONE -i NONE -N --not-a-term -c "set swapfile directory=. backup backupdir=. backupskip= backupcopy=$how" \
			-c '%s/one/vim/' -c 'normal Gotail' -c wq v >/dev/null 2>&1
		same "$(in_guest 'cat v; stat -c %a v; cat v~')" "$(printf 'vim\ntwo\ntail\n640\none\ntwo')"
		only 'v v~ '
		rm v v~
	done
}
@test "emacs: lock, backup, and a file that was changed inside meanwhile" {
	echo one >e
	emacs --batch -Q --eval '(progn (setq backup-enable-predicate (lambda (_) t)) (find-file "e") (goto-char (point-max)) (insert "emacs\n")
		(unless (file-symlink-p ".#e") (error "no lock")) (save-buffer))' >/dev/null 2>&1
	same "$(in_guest 'cat e; cat e~')" "$(printf 'one\nemacs\none')"
	only 'e e~ '
	in_guest 'echo inside > e' >/dev/null
	same "$(emacs --batch -Q --eval '(progn (find-file "e") (princ (buffer-string)))' 2>/dev/null)" inside
}
@test "nano: on a terminal, with its lock file" {
	echo one >n
	by nano n 'typed '
	same "$(in_guest 'cat n')" 'typed one'
	only 'n '
}
@test "saves as graphical editors make them, while somebody watches the folder" {
	echo one >c
	by saves
	same "$(in_guest 'cat c d')" "$(printf 'renamed\nin place')"
	only 'c d '
}
@test "sed -i, sort -o, dd, tee, install, truncate, shred" {
	printf 'b\na\n' >s
	sed -i 's/b/c/' s
	sort -o s s
	same "$(in_guest 'cat s')" "$(printf 'a\nc')"
	echo more | tee -a s >/dev/null
	printf X | dd of=s bs=1 seek=2 conv=notrunc status=none
	same "$(in_guest 'cat s')" "$(printf 'a\nX\nmore')"
	install -m 750 s i
	same "$(in_guest 'stat -c %a i')" 750
	truncate -s 3 s
	same "$(in_guest 'wc -c < s')" 3
	shred -u i
	only 's '
}
@test "git: clone, checkout, status, rebase, worktree, gc" {
	git init -q -b main "$T/host/up"
	(cd "$T/host/up" && for i in $(seq 60); do mkdir -p "d$((i % 7))"; echo "$i" >"d$((i % 7))/f$i"; done &&
		git add . && git commit -qm one && git checkout -qb side && echo side >side && git add . &&
		git commit -qm side && git checkout -q main && echo more >>d1/f1 && git commit -qam more)
	git clone -q "$T/host/up" g
	cd g
	same "$(git status --porcelain)" ''
	in_guest 'cd g && echo inside > d2/f2 && rm d3/f3 && echo new > new' >/dev/null
	fs_wait sh -c '[ "$(git status --porcelain | sort | tr "\n" " ")" = " D d3/f3  M d2/f2 ?? new " ]'
	git stash -qu
	git checkout -q side
	git rebase -q main
	same "$(git log --format=%s | tr '\n' ' ')" 'side more one '
	git worktree add -q ../tree main
	same "$(cat ../tree/d1/f1)" "$(printf '1\nmore')"
	(cd ../tree && echo w >w && git add . && git commit -qm worktree && git status --porcelain)
	git worktree remove ../tree
	git gc -q
	git fsck --strict >/dev/null
	git stash pop -q
	same "$(git status --porcelain | sort | tr '\n' ' ')" ' D d3/f3  M d2/f2 ?? new '
}
@test "sqlite: journal and log modes, and what is inside afterwards" {
	by sqlite
	same "$(in_guest 'ls')" "$(printf 'j.db\nw.db')"
}
@test "rsync: there, again with nothing to do, back, and with deletions" {
	mkdir -p "$T/host/r/sub"
	(cd "$T/host/r" && for i in $(seq 40); do echo "$i" >"sub/$i"; done && ln -s sub/1 link && ln sub/2 hard &&
		head -c 300000 /dev/urandom >big && chmod 600 big && touch -d '2001-02-03 04:05:06.789' sub/3)
	rsync -aHX "$T/host/r/" r/
	same "$(rsync -aHXi "$T/host/r/" r/)" ''
	same "$(in_guest 'stat -c %h r/hard; stat -c %a r/big; readlink r/link; stat -c %Y r/sub/3')" \
		"$(printf '2\n600\nsub/1\n%s' "$(date -d '2001-02-03 04:05:06' +%s)")"
	rm "$T/host/r/sub/7"
	in_guest 'echo x >> r/sub/8' >/dev/null
	rsync -aHX --delete --checksum "$T/host/r/" r/
	diff -r "$T/host/r" r
	rsync -aHX r/ "$T/host/back/"
	diff -r "$T/host/r" "$T/host/back"
}
@test "tar: extended attributes and holes, both ways" {
	mkdir "$T/host/x"
	(cd "$T/host/x" && echo a >a && setfattr -n user.k -v value a && truncate -s 20M holes &&
		echo data | dd of=holes bs=1 seek=9000000 conv=notrunc status=none && tar --xattrs -Scf "$T/host/x.tar" .)
	tar --xattrs -xf "$T/host/x.tar"
	same "$(getfattr --only-values -n user.k a)" value
	cmp "$T/host/x/holes" holes
	[ "$(in_guest 'stat -c %b holes')" -lt 1000 ]
	tar --xattrs -Scf "$T/host/y.tar" .
	[ "$(stat -c %s "$T/host/y.tar")" -lt 1000000 ]
	mkdir "$T/host/y"
	tar --xattrs -xf "$T/host/y.tar" -C "$T/host/y"
	same "$(getfattr --only-values -n user.k "$T/host/y/a")" value
	cmp holes "$T/host/y/holes"
}
@test "make -j: builds once, then nothing, then what was changed here or inside" {
	for i in $(seq 30); do echo "$i" >"$i.in"; done
	printf 'all: %s\n%%.out: %%.in\n\t@cat $< > $@; echo $@\nall: ; @cat *.out > sum\n' \
		"$(seq -f %g.out 30 | tr '\n' ' ')" >Makefile
	same "$(make -j4 | wc -l)" 30
	same "$(make -j4 | wc -l)" 0
	echo 77 >7.in
	in_guest 'echo 88 > 8.in' >/dev/null
	fs_wait sh -c 'make -qj4 8.out; [ $? = 1 ]'
	same "$(make -j4 | sort | tr '\n' ' ')" '7.out 8.out '
	same "$(in_guest 'sort -n sum | tail -n 2 | tr "\n" " "')" '77 88 '
}
@test "grep -r, ripgrep, find, du and df over all of the sandbox: nothing hangs" {
	in_guest 'mkfifo pipe; ln -s pipe viapipe; ln -s / up; ln -s nowhere dangling; echo needle-in > hay' >/dev/null
	same "$(timeout 120 grep -rls needle-in "$B/fs" | grep -c /hay)" 1
	timeout 120 grep -rls needle-in "$B" --exclude-dir=fs --exclude-dir=root --exclude-dir=home >/dev/null ||
		[ $? != 124 ]
	timeout 120 rg -uuu --no-messages -l needle-in "$B/fs/sandbox" | grep -q 'hay$'
	# What may not be looked into is said, and a folder is never taken for another.
	timeout 120 find "$B/fs" -ls >/dev/null 2>"$T/host/said" || [ $? != 124 ]
	refused "" grep loop "$T/host/said"
	timeout 120 du -s "$B/fs" >/dev/null 2>&1 || [ $? != 124 ]
	timeout 20 df "$B/fs/sandbox/home" "$M" >/dev/null
	[ "$(df --output=size -B1 . | tail -n1)" -gt 1000000 ]
	timeout 20 ls -laR . >/dev/null
	echo alive >after
}
@test "less +F and tail -f follow what is written inside" {
	echo first >l
	by follow l less +F l
	by follow l tail -f l
}
@test "cp with reflink and holes, cp -a, mv, and ln keep what they should" {
	truncate -s 8M big
	printf end | dd of=big bs=1 seek=5000000 conv=notrunc status=none
	chmod 640 big
	touch -d '2001-02-03 04:05:06' big
	cp --reflink=auto --sparse=always big two
	cmp big two
	[ "$(in_guest 'stat -c %b two')" -lt 1000 ]
	cp -a big three
	same "$(stat -c '%a %Y %s' three)" "$(stat -c '%a %Y %s' big)"
	mv three "$T/host/three"
	cmp big "$T/host/three"
	mv "$T/host/three" back
	cmp big back
	same "$(in_guest 'stat -c %Y back')" "$(stat -c %Y big)"
	ln big hard
	same "$(in_guest 'stat -c %h big')" 2
}
@test "mmap: what a mapping writes is inside, and the other way round" { by mapped; }
