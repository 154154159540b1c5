// SPDX-License-Identifier: Apache-2.0

// Package nft makes nft tables equal to state.Table values. Text for people and bytes for the kernel are one truth: a
// rule is written in nft's own words, compiled to netlink expressions, and read back as the same words.
//
// # Vocabulary
//
//   - A whole table is weft's alone: Apply makes the kernel's table exactly the value, Remove deletes it.
//   - A shared table (state.Table.Shared) has many owners: Apply makes sure of its sets, chains and rules and adds the
//     elements that are named; Remove takes away those elements and nothing else; RemoveShared takes the table away when no
//     element is left in any of its sets.
//   - Exclusive sets of a shared table (state.Set.Exclusive) are those whose elements one owner alone can have. The same key
//     is refused by the kernel in the transaction itself; a key that is the end of another's is looked for in the other
//     sets of the group, unless they are known to be empty.
//   - Owned sets of a shared table (state.Set.Owned) are those whose elements pass from one owner to the next: Apply puts the
//     owner's comment in the place of another's, and what that one takes away later is not theirs.
//   - A set that learns (state.Set.Learns) holds what rules put into it, until that fades: no plan names its elements, and
//     they are no difference.
//   - A change (state.TableChange) is what to write to a whole table without reading it: who sends it knows what the kernel
//     holds. Where it does not fit, the kernel refuses all of it, and Apply puts things right.
//   - The generation is the kernel's counter of committed transactions in a namespace. When it has not moved since a
//     table was last looked at, nobody has touched the table, so that adding a pod is one transaction and no reading.
//
// # The rules that are understood
//
//	match      = field [ "!=" ] value | field { "." field [ "&" mask ] } [ "!=" ] "@" set
//	field      = "ip" ( "saddr" | "daddr" | "protocol" ) | "ip6" ( "saddr" | "daddr" | "nexthdr" | "hoplimit" )
//	           | ( "tcp" | "udp" | "sctp" | "th" ) ( "sport" | "dport" )
//	           | "iifname" | "oifname" | "meta" ( "mark" | "l4proto" | "nfproto" | "oifkind" ) | "ether" ( "saddr" | "daddr" )
//	           | "arp saddr" ( "ether" | "ip" ) | "arp daddr ip" | "arp operation"
//	           | "ip" ( "id" | "frag-off" ) | "tcp flags" | ( "icmp" | "icmpv6" ) "id" | "@" ( "th" | "nh" ) "," bit "," bits
//	           | ( "icmp" | "icmpv6" ) "type" | "ct" ( "state" | "status" | "mark" | "direction" ) | "fib" ( "saddr" | "daddr" ) "type"
//	value      = literal | address "/" length | literal "-" literal | flag { "," flag } | mask form "& m == v"
//	statement  = "accept" | "drop" | "return" | "continue" | "jump" chain | "goto" chain | "counter" | "notrack"
//	           | "reject" [ "with" … ] | "masquerade" [ flags ] | ( "dnat" | "snat" ) [ "ip" | "ip6" ] "to" target
//	           | "fwd" "to" index | "log" [ "prefix" word ] [ "group" number [ "snaplen" number ] ]
//	           | "limit" "rate" [ "over" ] number "/" unit [ "burst" number "packets" ]
//	           | ( "meta" | "ct" ) "mark" "set" source | fields "vmap" "@" map | ( "ip" | "ip6" ) "dscp" "set" number
//	           | "update" "@" set "{" fields "timeout" time "}" | "delete" "@" set "{" fields "}"
//
// An element can keep a limit, or "ct" "count" [ "over" ] number, for itself: it matches while that holds.
//
// Everything else is refused with an error that names the word.
package nft
