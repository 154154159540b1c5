// SPDX-License-Identifier: Apache-2.0

package flow

// NetfilterDrop is the kernel's reason of packets that a packet filter drops, also weft's policies.
const NetfilterDrop = "NETFILTER_DROP"

// Reasons of weft's own, of flows that a node cannot decide about.
const (
	ReasonPoliciesUnknown = "policies are not known yet"
	ReasonNotAllowed      = "connection is not allowed any more"
	// ReasonHostEndpoint is in the sentences that say which host endpoint may deny a packet.
	ReasonHostEndpoint = "host endpoint"
)

// DropReasons returns the kernel's reasons of drops that are flows' ends, without their prefix SKB_DROP_REASON_. Others are
// normal, such as a closed socket's, or of frames that are no IP packets: agents do not report them.
func DropReasons() []string {
	return []string{
		NetfilterDrop, "IP_RPFILTER", "IP_INNOROUTES", "IP_OUTNOROUTES", "IP_INADDRERRORS", "IP_INVALID_SOURCE",
		"IP_LOCAL_SOURCE", "NEIGH_FAILED", "NEIGH_QUEUEFULL", "NEIGH_CREATEFAIL", "PKT_TOO_BIG", "TCP_CSUM", "UDP_CSUM",
		"ICMP_CSUM", "IP_CSUM", "SOCKET_RCVBUFF", "VXLAN_VNI_NOT_FOUND", "VXLAN_NO_REMOTE", "NO_TX_TARGET", "QDISC_DROP",
		"FULL_RING", "IPV6DISABLED", "TC_INGRESS", "TC_EGRESS",
	}
}
