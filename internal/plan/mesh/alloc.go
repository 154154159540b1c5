// SPDX-License-Identifier: Apache-2.0

package mesh

// allocRow is the backend that only assigns each node its prefix: another program routes it.
func allocRow() Backend { return Backend{Name: "alloc"} }

// BackendBGP is the name of the backend whose routes to other nodes' pods are learned by BGP.
const BackendBGP = "bgp"

func bgpRow() Backend { return Backend{Name: BackendBGP, Node: enableForwarding} }
