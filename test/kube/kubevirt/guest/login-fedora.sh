#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A login as Fedora's images have it: fedora, with that password, and sudo.
stty sane
while :; do
	printf '\r\n%s login: ' "$(hostname)"
	read -r user || exit
	[ "$user" ] || continue
	printf 'Password: '
	read -rs password || exit
	echo
	[ "$user:$password" != fedora:fedora ] || break
	printf 'Login incorrect\r\n'
done
cd /home/fedora
export PS1='[fedora@\h ~]$ ' TERM=dumb
exec bash --norc --noprofile +H
