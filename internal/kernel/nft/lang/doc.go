// SPDX-License-Identifier: Apache-2.0

// Package lang is nftables' language: rules, sets and tables as text, and the kernel's expressions that they mean. It
// compiles state.Table values, decompiles expressions that were read back into the same text, prints tables exactly as
// nft does, and compares tables. It is pure: it opens no socket and makes no system call; of the kernel it knows the
// numbers of the ABI. Messages, transactions and dumps are package nft's.
//
// # The supported rules
//
//	match      = field [ "!=" ] value | field { "." field [ "&" mask ] } [ "!=" ] "@" set
//	field      = "ip" ( "saddr" | "daddr" | "protocol" ) | "ip6" ( "saddr" | "daddr" | "nexthdr" | "hoplimit" )
//	           | ( "tcp" | "udp" | "sctp" | "th" ) ( "sport" | "dport" )
//	           | "iifname" | "oifname" | "meta" ( "mark" | "l4proto" | "nfproto" | "oifkind" ) | "ether" ( "saddr" | "daddr" )
//	           | "arp saddr" ( "ether" | "ip" ) | "arp daddr ip" | "arp operation"
//	           | "ip" ( "id" | "frag-off" ) | "tcp flags" | ( "icmp" | "icmpv6" ) "id" | "@" ( "th" | "nh" ) "," bit "," bits
//	           | ( "icmp" | "icmpv6" ) ( "type" | "code" ) | "ct" ( "state" | "status" | "mark" | "direction" | "id" ) | "fib" ( "saddr" | "daddr" ) "type"
//	value      = literal | address "/" length | literal "-" literal | flag { "," flag } | mask form "& m == v"
//	statement  = "accept" | "drop" | "return" | "continue" | "jump" chain | "goto" chain | "counter" | "notrack"
//	           | "reject" [ "with" … ] | "masquerade" [ flags ] | ( "dnat" | "snat" ) [ "ip" | "ip6" ] "to" target
//	           | "fwd" "to" index | "log" [ "prefix" word ] [ "group" number [ "snaplen" number ] ]
//	           | "limit" "rate" [ "over" ] number "/" unit [ "burst" number "packets" ]
//	           | ( "meta" | "ct" ) "mark" "set" source | fields "vmap" "@" map | ( "ip" | "ip6" ) "dscp" "set" number
//	           | "update" "@" set "{" fields "timeout" time "}" | "delete" "@" set "{" fields "}"
//	           | "flow" "add" "@" flowtable
//
// An element can have a stateful expression of its own, a limit or "ct" "count" [ "over" ] number: it matches while
// that holds.
//
// Everything else is refused with an error that names the word.
package lang
