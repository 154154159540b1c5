//go:build ignore

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

// The learned fast path. Netfilter and the routing decide on the first packets of a flow; the next ones are redirected.
//
// fast_in, on arriving packets of a link, notes a packet's tuple and stamps the packet with the time; fast_out, on leaving
// packets, finds the note by the tuple that the packet has now, and its stamp in it: so this packet was let through, and
// nothing of its tuple was translated. A packet that the stack dropped, translated, marked or queued to a program never
// gets there with its stamp.
//
// Everything that the stack must see takes the slow path: SYN, FIN, RST, fragments, options, other protocols, packets
// larger than the route's MTU or at the end of their lifetime, and one packet in every interval, which keeps the entry of
// conntrack alive and learns the flow again.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define NEXT -1 /* TCX_NEXT: other programs, then the stack */
#define AF_INET 2
#define AF_INET6 10

#define NOTES 4	       /* notes of a flow that are made at once */
#define SECOND 1000000000ULL
#define CLOSED_FOR (300 * SECOND) /* how long a closing connection is not learned again */

/* FORWARDED marks packets of the fast path in their tc_index, which nothing in the kernel uses any more. */
#define FORWARDED 0x5746

enum { NOTED = 1, LEARNED, CLOSING };
enum { TO_NEIGHBOR = 1, TO_PEER, TO_TAP };

struct settings {
	__u64 interval_tcp, interval_udp; /* ns */
	__u32 generation, enabled;
};

struct key {
	__u32 link; /* at which the packet arrived */
	__u8 family, protocol;
	__u16 unused;
	__be16 from_port, to_port;
	__u8 from[16], to[16];
};

struct flow {
	__u64 noted;  /* the stamp of the noted packet */
	__u64 passed; /* when the stack has let a packet through */
	__u32 generation, to_link, mtu, priority, mark;
	__u8 state, how, tos, notes;
	__u32 came[3], leaves[3]; /* MAC addresses, destination first */
	struct bpf_redir_neigh next;
};

struct counters {
	__u64 packets, bytes, learned;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} weft_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, struct key);
	__type(value, struct flow);
} weft_flows SEC(".maps");

/* weft_links are the links of the fast path, and how packets are redirected to each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} weft_links SEC(".maps");

/* weft_owners are the links of the node's pods by address: a pod's flows are learned from its own address alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u8[16]);
	__type(value, __u32);
} weft_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} weft_counters SEC(".maps");

/* packet is what else is read of a packet. */
struct packet {
	__u32 ttl, headers;
	__u8 tos, shuts, opens; /* TCP's FIN or RST; SYN */
	__u32 macs[3];
	__u8 ip[12] __attribute__((aligned(4))); /* the first words of IPv4, with TTL, protocol and checksum */
};

static __always_inline struct settings *settings(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&weft_settings, &zero);
}

/* mapped writes an IPv4 address as in IPv6. */
static __always_inline void mapped(__u8 *to, __be32 a)
{
	to[10] = to[11] = 0xff;
	__builtin_memcpy(to + 12, &a, 4);
}

/* reach makes the headers readable. */
static __always_inline int reach(struct __sk_buff *skb, __u32 size)
{
	if ((void *)(long)skb->data + size <= (void *)(long)skb->data_end)
		return 1;
	return skb->len >= size && bpf_skb_pull_data(skb, size) == 0 &&
	       (void *)(long)skb->data + size <= (void *)(long)skb->data_end;
}

/* parse reads a packet that may take the fast path; 0 for any other. */
static __always_inline int parse(struct __sk_buff *skb, struct key *k, struct packet *p)
{
	__u32 at;

	if (skb->vlan_present)
		return 0;
	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip;
		at = ETH_HLEN + sizeof(*ip);
		if (!reach(skb, at + sizeof(struct udphdr)))
			return 0;
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		ip = data + ETH_HLEN;
		if ((void *)(ip + 1) > end)
			return 0;
		/* no options, no fragment */
		if (*(__u8 *)ip != 0x45 || ip->frag_off & bpf_htons(0x3fff))
			return 0;
		if (bpf_ntohs(ip->tot_len) < sizeof(*ip) || bpf_ntohs(ip->tot_len) + ETH_HLEN > skb->len)
			if (!skb->gso_size)
				return 0;
		k->family = AF_INET;
		k->protocol = ip->protocol;
		mapped(k->from, ip->saddr);
		mapped(k->to, ip->daddr);
		p->ttl = ip->ttl;
		p->tos = ip->tos & ~3; /* congestion varies */
		__builtin_memcpy(p->ip, ip, sizeof(p->ip));
	} else if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip;
		at = ETH_HLEN + sizeof(*ip);
		if (!reach(skb, at + sizeof(struct udphdr)))
			return 0;
		void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
		ip = data + ETH_HLEN;
		if ((void *)(ip + 1) > end || *(__u8 *)ip >> 4 != 6)
			return 0;
		k->family = AF_INET6;
		k->protocol = ip->nexthdr; /* an extension header is no protocol of the fast path */
		__builtin_memcpy(k->from, &ip->saddr, 16);
		__builtin_memcpy(k->to, &ip->daddr, 16);
		p->ttl = ip->hop_limit;
		p->tos = (bpf_ntohs(*(__be16 *)ip) >> 4) & 0xfc;
	} else {
		return 0;
	}
	if (k->protocol == IPPROTO_TCP) {
		if (!reach(skb, at + sizeof(struct tcphdr)))
			return 0;
		struct tcphdr *tcp = (void *)(long)skb->data + at;
		if ((void *)(tcp + 1) > (void *)(long)skb->data_end)
			return 0;
		k->from_port = tcp->source;
		k->to_port = tcp->dest;
		p->opens = tcp->syn;
		p->shuts = tcp->fin || tcp->rst || !tcp->ack;
		p->headers = at - ETH_HLEN + tcp->doff * 4;
	} else if (k->protocol == IPPROTO_UDP) {
		struct udphdr *udp = (void *)(long)skb->data + at;
		if ((void *)(udp + 1) > (void *)(long)skb->data_end)
			return 0;
		k->from_port = udp->source;
		k->to_port = udp->dest;
		p->headers = at - ETH_HLEN + sizeof(*udp);
	} else {
		return 0;
	}
	void *data = (void *)(long)skb->data;
	if (data + ETH_HLEN > (void *)(long)skb->data_end)
		return 0;
	__builtin_memcpy(p->macs, (__u32 *)data, 12); /* clang reads single bytes otherwise */
	return 1;
}

/* fits reports whether a packet needs no ICMP error and no fragments on its way. */
static __always_inline int fits(struct __sk_buff *skb, struct packet *p, __u32 mtu)
{
	if (skb->len - ETH_HLEN <= mtu)
		return 1;
	return skb->gso_size && p->headers + skb->gso_size <= mtu;
}

static __always_inline int same(const __u32 *x, const __u32 *y)
{
	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2];
}

/* forward redirects a packet; -1 if it cannot be written. */
static __always_inline int forward(struct __sk_buff *skb, struct key *k, struct packet *p, struct flow *f)
{
	__u32 zero = 0, how = f->how, to = f->to_link;
	struct bpf_redir_neigh next;
	struct {
		__u32 macs[3];
		__be16 type;
		__u8 ip[12];
	} __attribute__((packed, aligned(4))) head; /* a call for each part takes longer */

	if (how == TO_NEIGHBOR)
		next = f->next;
	else
		__builtin_memcpy(head.macs, f->leaves, sizeof(head.macs));
	if (k->family == AF_INET) {
		/* as the kernel's ip_decrease_ttl; the sum of the header stays */
		__u16 sum;
		__builtin_memcpy(&sum, p->ip + 10, 2);
		__u32 check = (__u32)sum + bpf_htons(0x0100);
		sum = check + (check >= 0xffff);
		p->ip[8]--;
		__builtin_memcpy(p->ip + 10, &sum, 2);
		if (how == TO_NEIGHBOR) {
			if (bpf_skb_store_bytes(skb, ETH_HLEN + 8, p->ip + 8, 4, 0))
				return NEXT;
		} else {
			head.type = bpf_htons(ETH_P_IP);
			__builtin_memcpy(head.ip, p->ip, sizeof(head.ip));
			if (bpf_skb_store_bytes(skb, 0, &head, ETH_HLEN + sizeof(head.ip), 0))
				return NEXT;
		}
	} else {
		__u8 ttl = p->ttl - 1;
		if (bpf_skb_store_bytes(skb, ETH_HLEN + 7, &ttl, 1, BPF_F_RECOMPUTE_CSUM))
			return NEXT;
		if (how != TO_NEIGHBOR && bpf_skb_store_bytes(skb, 0, head.macs, sizeof(head.macs), 0))
			return TC_ACT_SHOT;
	}
	struct counters *c = bpf_map_lookup_elem(&weft_counters, &zero);
	if (c) {
		c->packets++;
		c->bytes += skb->len - ETH_HLEN;
	}
	skb->priority = f->priority;
	if (how == TO_PEER)
		return bpf_redirect_peer(to, 0);
	skb->tc_index = FORWARDED;
	if (how == TO_TAP)
		return bpf_redirect(to, 0);
	return bpf_redirect_neigh(to, &next, sizeof(next), 0);
}

SEC("tcx/ingress")
int weft_fast_in(struct __sk_buff *skb)
{
	struct settings *s = settings();
	struct packet p = {};
	struct key k = {};

	if (!s || !s->enabled || skb->pkt_type != 0 /* PACKET_HOST */)
		return NEXT;
	if (!parse(skb, &k, &p) || p.opens || p.shuts || p.ttl <= 1)
		return NEXT;
	k.link = skb->ifindex;

	__u64 now = bpf_ktime_get_coarse_ns(); /* of the last tick: reading the clock takes a seventh of this program's time */
	__u32 generation = s->generation;
	__u64 interval = k.protocol == IPPROTO_TCP ? s->interval_tcp : s->interval_udp;
	__u8 notes = 0;
	struct flow *f = bpf_map_lookup_elem(&weft_flows, &k);
	if (f) {
		__u64 since = now - f->noted;
		if (f->state == LEARNED && f->generation == generation && (__s64)(now - f->passed) < (__s64)interval) {
			if (f->tos != p.tos || f->mark != skb->mark || !same(f->came, p.macs) || !fits(skb, &p, f->mtu))
				return NEXT;
			return forward(skb, &k, &p, f);
		}
		if (f->state == CLOSING && (__s64)since < (__s64)CLOSED_FOR)
			return NEXT;
		/* A flow whose packets are dropped, translated or for the node is noted once a second. */
		if (f->state == NOTED && f->generation == generation) {
			notes = f->notes;
			if (notes >= NOTES && (__s64)since < (__s64)SECOND)
				return NEXT;
		}
	}

	__u32 link = k.link, *how = bpf_map_lookup_elem(&weft_links, &link), *owner;
	if (!how)
		return NEXT;
	owner = bpf_map_lookup_elem(&weft_owners, *how != TO_NEIGHBOR ? k.from : k.to);
	if (!owner || (*how != TO_NEIGHBOR && *owner != link))
		return NEXT;

	/* The stamp is unique: two packets of one processor are further apart. */
	struct flow note = {
		.noted = (bpf_ktime_get_ns() & ~0xffULL) | (bpf_get_smp_processor_id() & 0xff),
		.generation = generation,
		.state = NOTED,
		.tos = p.tos,
		.mark = skb->mark,
		.notes = notes < NOTES ? notes + 1 : notes,
	};
	__builtin_memcpy(note.came, p.macs, 12);
	if (bpf_map_update_elem(&weft_flows, &k, &note, BPF_ANY) == 0)
		bpf_skb_set_tstamp(skb, note.noted, BPF_SKB_TSTAMP_DELIVERY_MONO);
	return NEXT;
}

/* shut ends the fast path of a connection in one direction: its end belongs to conntrack. */
static __always_inline void shut(struct key *k, struct packet *p, __u64 now)
{
	struct flow *f = bpf_map_lookup_elem(&weft_flows, k);

	if (!f)
		return;
	if (p->opens) {
		bpf_map_delete_elem(&weft_flows, k);
		return;
	}
	f->noted = now;
	f->state = CLOSING;
}

SEC("tcx/egress")
int weft_fast_out(struct __sk_buff *skb)
{
	struct settings *s = settings();
	struct packet p = {};
	struct key k = {};
	__u32 to = skb->ifindex, from = skb->ingress_ifindex, zero = 0;

	if (skb->tc_index == FORWARDED) {
		skb->tc_index = 0;
		return NEXT;
	}
	if (!s || !s->enabled || !from || from == to || !parse(skb, &k, &p))
		return NEXT;
	k.link = from;
	if (p.opens || p.shuts) {
		struct key back = { .link = to, .family = k.family, .protocol = k.protocol, .from_port = k.to_port, .to_port = k.from_port };
		__builtin_memcpy(back.from, k.to, 16);
		__builtin_memcpy(back.to, k.from, 16);
		__u64 now = bpf_ktime_get_ns();
		shut(&k, &p, now);
		shut(&back, &p, now);
		return NEXT;
	}
	__u64 stamp = skb->tstamp;
	struct flow *f = bpf_map_lookup_elem(&weft_flows, &k);
	if (!f || !stamp || f->noted != stamp || f->state != NOTED || f->generation != s->generation ||
	    f->tos != p.tos || f->mark != skb->mark)
		return NEXT;
	__u32 *how = bpf_map_lookup_elem(&weft_links, &to);
	if (!how)
		return NEXT;

	/* The next hop and the MTU of the way that the packet has taken. */
	struct bpf_fib_lookup fib = {
		.family = k.family,
		.l4_protocol = k.protocol,
		.sport = k.from_port,
		.dport = k.to_port,
		.tot_len = 1,
		.ifindex = from,
	};
	if (k.family == AF_INET) {
		fib.tos = p.tos;
		__builtin_memcpy(&fib.ipv4_src, k.from + 12, 4);
		__builtin_memcpy(&fib.ipv4_dst, k.to + 12, 4);
	} else {
		__builtin_memcpy(fib.ipv6_src, k.from, 16);
		__builtin_memcpy(fib.ipv6_dst, k.to, 16);
	}
	if (bpf_fib_lookup(skb, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS || fib.ifindex != to)
		return NEXT;

	struct flow learned = {
		.noted = stamp,
		.passed = stamp,
		.generation = f->generation,
		.to_link = to,
		.mtu = fib.mtu_result,
		.priority = skb->priority,
		.mark = skb->mark,
		.state = LEARNED,
		.how = *how,
		.tos = p.tos,
	};
	__builtin_memcpy(learned.came, f->came, 12);
	__builtin_memcpy(learned.leaves, p.macs, 12);
	learned.next.nh_family = fib.family;
	if (fib.family == AF_INET)
		learned.next.ipv4_nh = fib.ipv4_dst;
	else
		__builtin_memcpy(learned.next.ipv6_nh, fib.ipv6_dst, 16);
	if (bpf_map_update_elem(&weft_flows, &k, &learned, BPF_EXIST))
		return NEXT;
	struct counters *c = bpf_map_lookup_elem(&weft_counters, &zero);
	if (c)
		c->learned++;
	bpf_skb_set_tstamp(skb, 0, BPF_SKB_TSTAMP_UNSPEC);
	return NEXT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
