#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A login as CirrOS' images have it: cirros, with that password, and sudo.
stty sane
while :; do
	printf "\r\nlogin as 'cirros' user. default password: 'gocubsgo'. use 'sudo' for root.\r\n%s login: " "$(hostname)"
	read -r user || exit
	[ "$user" ] || continue
	printf 'Password: '
	read -rs password || exit
	echo
	[ "$user:$password" != cirros:gocubsgo ] || break
	printf 'Login incorrect\r\n'
done
cd /tmp
export PS1='$ ' TERM=dumb
exec bash --norc --noprofile +H
