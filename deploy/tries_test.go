// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"strings"
)

// tries are what an agent of node n1 may write, and may not.
func tries() []try {
	patch := func(spec string) string { return `{"spec":` + spec + `}` }
	return []try{
		{"another node's pod", "PATCH", fmt.Sprintf(statusOf, "p2"), network, 422, "this one is on n2, the token is of n1"},
		{"its own node's pod", "PATCH", fmt.Sprintf(statusOf, "p1"), network, 200, ""},
		{
			"taken back", "PATCH", fmt.Sprintf(statusOf, "p1"),
			`{"metadata":{"annotations":{"k8s.v1.cni.cncf.io/network-status":null}}}`, 200, "",
		},
		{
			"another annotation", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"annotations":{"theirs":"2"}}}`, 422,
			"and no other",
		},
		{
			"an annotation removed", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"annotations":{"theirs":null}}}`, 422,
			"and no other",
		},
		{"the status", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"status":{"phase":"Failed"}}`, 422, "not its status"},
		{"a label", "PATCH", fmt.Sprintf(statusOf, "p1"), `{"metadata":{"labels":{"app":"y"}}}`, 422, "no labels"},
		{
			"the pod itself", "PATCH", "/api/v1/namespaces/default/pods/p1", `{"metadata":{"labels":{"app":"y"}}}`, 403,
			"cannot patch",
		},
		{"a pod deleted", "DELETE", "/api/v1/namespaces/default/pods/p1", "", 403, "cannot delete"},
		{"secrets", "GET", "/api/v1/secrets", "", 403, "cannot list"},
		{"a node", "PATCH", "/api/v1/nodes/n1", `{}`, 403, "cannot patch"},
		{"its own node's annotation", "PATCH", nodeStatus + "n1/status", flannels, 200, ""},
		{"another node's annotation", "PATCH", nodeStatus + "n2/status", flannels, 422, "this one is n2, the token is of n1"},
		{
			"another annotation of the node", "PATCH", nodeStatus + "n1/status", `{"metadata":{"annotations":{"theirs":"1"}}}`,
			422, "and no other",
		},
		{
			"its own pods' addresses", "PATCH", nodeStatus + "n1/status",
			`{"metadata":{"annotations":{"weft.dev/pod-addresses":"[]"}}}`, 200, "",
		},
		{
			"none any more", "PATCH", nodeStatus + "n1/status",
			`{"metadata":{"annotations":{"weft.dev/pod-addresses":null}}}`, 200, "",
		},
		{
			"its own listener, as earlier versions", "PATCH", nodeStatus + "n1/status",
			`{"metadata":{"annotations":{"weft.dev/flow-listener":"{}"}}}`, 200, "",
		},
		{
			"it is removed", "PATCH", nodeStatus + "n1/status", `{"metadata":{"annotations":{"weft.dev/flow-listener":null}}}`, 200, "",
		},
		{
			"another node's listener, as earlier versions", "PATCH", nodeStatus + "n2/status",
			`{"metadata":{"annotations":{"weft.dev/flow-listener":"{}"}}}`, 422, "this one is n2, the token is of n1",
		},
		{
			"whose a token is", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{}`, 403, "cannot create",
		},
		{
			"those of another node's pods", "PATCH", nodeStatus + "n2/status",
			`{"metadata":{"annotations":{"weft.dev/pod-addresses":"[]"}}}`, 422, "this one is n2, the token is of n1",
		},
		{"a label of the node", "PATCH", nodeStatus + "n1/status", `{"metadata":{"labels":{"app":"y"}}}`, 422, "no labels"},
		{
			"the network is available", "PATCH", nodeStatus + "n1/status",
			`{"status":{"conditions":[{"type":"NetworkUnavailable","status":"False"}]}}`, 200, "",
		},
		{
			"the node is ready", "PATCH", nodeStatus + "n1/status",
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, 422, "NetworkUnavailable of its node and no other",
		},
		{
			"an address of the node", "PATCH", nodeStatus + "n1/status",
			`{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}`, 422, "not the rest",
		},
		{"nodes read", "GET", "/api/v1/nodes", "", 200, ""},
		{"pods read", "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "", 200, ""},
		{"networks read", "GET", "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", "", 200, ""},
		{
			"a network made", "POST", "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions", `{}`, 403,
			"cannot create",
		},
		{
			"an event", "POST", "/api/v1/namespaces/default/events",
			`{"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"default"},
			"involvedObject":{"kind":"Pod","namespace":"default","name":"p1"},"reason":"R","message":"m","type":"Normal"}`, 201, "",
		},
		{"a block of its own", "POST", blocksURL, block("b1", "n1", "1", ""), 201, ""},
		{
			"a block with a grant", "POST", blocksURL, block("b6", "n1", "1", `,"granted":{"10.0.6.1":"n1 for a/b"}`), 422,
			"grant no addresses",
		},
		{"a block for another", "POST", blocksURL, block("b3", "n2", "1", ""), 422, "for its own node only"},
		{
			"a block that nobody had, as orphaned", "POST", blocksURL, block("b4", "n1", "1", `,"orphaned":true`), 422,
			"only the controller may mark a block orphaned",
		},
		{
			"its own block, as orphaned", swap, blocksURL + "/b1", patch(`{"orphaned":true}`), 422,
			"only the controller may mark a block orphaned",
		},
		{"its own block's claim", swap, blocksURL + "/b1", patch(`{"claim":"2"}`), 200, ""},
		{
			"its own block given away", swap, blocksURL + "/b1", patch(`{"node":"n2"}`), 422,
			"that the controller marked orphaned",
		},
		{"asks for an address", swap, blocksURL + "/b2", patch(`{"asked":{"10.0.2.1":"n1","10.0.2.9":"n3"}}`), 200, ""},
		{
			"asks for an address for a claim", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b","10.0.2.9":"n3"}}`), 200, "",
		},
		{
			"asks in another's name", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b","10.0.2.3":"n3","10.0.2.9":"n3"}}`), 422,
			"for its own node only",
		},
		{
			"asks in the place of another", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b","10.0.2.9":"n1"}}`), 422, "for its own node only",
		},
		{
			"asks for what is no address", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b","x":"n1","10.0.2.9":"n3"}}`), 422,
			"only addresses of the block",
		},
		{
			"asks for an address of another block", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b","10.0.3.2":"n1","10.0.2.9":"n3"}}`), 422,
			"only addresses of the block",
		},
		{
			"another's block given to the garbage collector",
			swap,
			blocksURL + "/b2",
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"8d4b2d1e-0000-4000-8000-000000000000"}]}}`,
			422,
			"no owners",
		},
		{
			"another's block kept from being deleted", swap, blocksURL + "/b2",
			`{"metadata":{"finalizers":["example.org/never"]}}`, 422, "no finalizers of a block",
		},
		{
			"takes back what another asks for", swap, blocksURL + "/b2",
			patch(`{"asked":{"10.0.2.1":"n1","10.0.2.2":"n1 for a/b"}}`), 422, "other nodes' requests",
		},
		{"does not ask any more", swap, blocksURL + "/b2", patch(`{"asked":{"10.0.2.1":"n1","10.0.2.9":"n3"}}`), 200, ""},
		{
			"an address that was not ceded", swap, blocksURL + "/b2",
			patch(`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.8":"n1/1"}}`), 422, "lent to its node or to every node",
		},
		{
			"an address for another", swap, blocksURL + "/b2", patch(`{"ceded":{"10.0.2.5":"n3/1","10.0.2.6":"n3/1"}}`), 422,
			"lent to its node or to every node",
		},
		{
			"an address that another has", swap, blocksURL + "/b2", patch(`{"ceded":{"10.0.2.5":"","10.0.2.6":"n1/1"}}`), 422,
			"lent to its node or to every node",
		},
		{
			"an address that was ceded to anybody", swap, blocksURL + "/b2",
			patch(`{"ceded":{"10.0.2.5":"n1/1","10.0.2.6":"n3/1"}}`), 200, "",
		},
		{"that one given back", swap, blocksURL + "/b2", patch(`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1"}}`), 200, ""},
		{
			"an address that is that node's again", swap, blocksURL + "/b2", patch(`{"ceded":{"10.0.2.5":""}}`), 422,
			"may not end the loan",
		},
		{
			"another's block orphaned", swap, blocksURL + "/b2", patch(`{"orphaned":true}`), 422,
			"only the controller may mark a block orphaned",
		},
		{
			"another's block whose node lives", swap, blocksURL + "/b2", patch(`{"node":"n1","claim":"3"}`), 422,
			"that the controller marked orphaned",
		},
		{"another's claim", swap, blocksURL + "/b2", patch(`{"claim":"2"}`), 422, "the claim or the VM of another"},
		{"given to a third", swap, blocksURL + "/b2", patch(`{"node":"n3"}`), 422, "that the controller marked orphaned"},
		{
			"a claim's address without a grant",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.9":"n1/1 for AddressClaim a/b"},"granted":{"10.0.2.7":"n1 for AddressClaim a/b","10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"one with the grant of another address",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.9":"n1/1 for AddressClaim a/b"},"granted":{"10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"one that another node was granted",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.8":"n1/1 for AddressClaim a/b"},"granted":{"10.0.2.7":"n1 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"one that was granted for another claim",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.7":"n1/1 for AddressClaim a/c"},"granted":{"10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"one that was granted, for no claim", swap, blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.7":"n1/1"},"granted":{"10.0.2.8":"n3 for AddressClaim a/b"}}`,
			), 422, "that the controller granted",
		},
		{
			"one that was granted, for another node",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.7":"n3/1 for AddressClaim a/b"},"granted":{"10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"one that was granted, and the grant stays",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.7":"n1/1 for AddressClaim a/b"},"granted":{"10.0.2.7":"n1 for AddressClaim a/b","10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"that the controller granted",
		},
		{
			"a grant by itself",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1"},"granted":{"10.0.2.7":"n1 for AddressClaim a/b","10.0.2.8":"n3 for AddressClaim a/b","10.0.2.9":"n1 for AddressClaim a/b"}}`,
			),
			422,
			"grant no addresses",
		},
		{
			"a grant changed",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1"},"granted":{"10.0.2.7":"n1 for AddressClaim a/c","10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			422,
			"grant no addresses",
		},
		{
			"another node's grant taken away", swap, blocksURL + "/b2",
			patch(`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1"},"granted":{"10.0.2.7":"n1 for AddressClaim a/b"}}`), 422,
			"remove grants to its own node only",
		},
		{
			"a claim's address that was granted",
			swap,
			blocksURL + "/b2",
			patch(
				`{"ceded":{"10.0.2.5":"","10.0.2.6":"n3/1","10.0.2.7":"n1/1 for AddressClaim a/b"},"granted":{"10.0.2.8":"n3 for AddressClaim a/b"}}`,
			),
			200,
			"",
		},
		{
			"a machine's claim", "POST", claimsURL,
			claim("machine", `{"virtualMachine":{"name":"db","network":"weft","interface":"eth0"}}`), 201, "",
		},
		{"people's claim", "POST", claimsURL, claim("mine", `{}`), 422, "of virtual machines, and no others"},
		{"a claim used here", swapStatus, claimsURL + "/machine", status(`{"addresses":["10.0.1.1"],"node":"n1"}`), 200, ""},
		{
			"a claim used elsewhere", swapStatus, claimsURL + "/machine", status(`{"addresses":["10.0.1.1"],"node":"n2"}`), 422,
			"only to its own node",
		},
		{
			"a claim of another node", swapStatus, claimsURL + "/theirs", status(`{"addresses":["10.0.2.1"],"node":"n2"}`), 422,
			"only to its own node",
		},
		{
			"a claim that moves here", swapStatus, claimsURL + "/theirs",
			status(`{"addresses":["10.0.2.1"],"node":"n1"}`), 200, "",
		},
		{
			"other addresses for a claim", swapStatus, claimsURL + "/theirs", status(`{"addresses":["10.0.2.2"],"node":"n1"}`),
			422, "remove addresses from a claim",
		},
		{
			"a claim's conditions", swapStatus, claimsURL + "/machine",
			status(`{"addresses":["10.0.1.1"],"node":"n1","conditions":[{"type":"Consistent","status":"True","reason":"NoFindings","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`), 422, "the conditions of a claim",
		},
		{
			"a block's conditions", swapStatus, blocksURL + "/b1", status(`{"conditions":[]}`), 403, "cannot update",
		},
		{"a claim changed", swap, claimsURL + "/theirs", patch(`{}`), 403, "cannot update"},
		{"a machine's claim deleted", "DELETE", claimsURL + "/machine", "", 403, "cannot delete"},
		{"people's claim deleted", "DELETE", claimsURL + "/theirs", "", 403, "cannot delete"},
		{
			"an address for an IPAMClaim", swapStatus, ipamClaimsURL + "/vm", status(`{"ips":["10.0.8.1/24","10.0.7.1/24"]}`),
			200, "",
		},
		{
			"an address of an IPAMClaim removed", swapStatus, ipamClaimsURL + "/vm", status(`{"ips":["10.0.8.1/24"]}`), 422,
			"may not remove addresses from an IPAMClaim",
		},
		{
			"an IPAMClaim emptied", swapStatus, ipamClaimsURL + "/vm", status(`{}`), 422,
			"may not remove addresses from an IPAMClaim",
		},
		{"an IPAMClaim changed", swap, ipamClaimsURL + "/vm", patch(`{}`), 403, "cannot update"},
		{"an IPAMClaim deleted", "DELETE", ipamClaimsURL + "/vm", "", 403, "cannot delete"},
		{"machines read", "GET", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/db", "", 404, ""},
		{"a machine made", "POST", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", "{}", 403, "cannot create"},
		{"a machine awaited", "POST", movesURL, move("m1", "n1"), 201, ""},
		{"a machine awaited elsewhere", "POST", movesURL, move("m2", "n2"), 422, "the token is of n1"},
		{"connections of its own", swap, movesURL + "/m1", patch(`{"source":"n1","connections":"AAEC"}`), 200, ""},
		{"connections of another", swap, movesURL + "/m1", patch(`{"source":"n3"}`), 422, "the token is of n1"},
		{"another target", swap, movesURL + "/m1", patch(`{"source":"n1","target":"n2"}`), 422, "cannot be changed"},
		{"a move that is over", "DELETE", movesURL + "/m1", "", 200, ""},
		{"another's deleted", "DELETE", blocksURL + "/b2", "", 422, "delete blocks of its own node only"},
		{
			"an orphan for a third", swap, blocksURL + "/orphan", patch(`{"node":"n3"}`), 422,
			"that the controller marked orphaned",
		},
		{
			"an orphan whose node is there", swap, blocksURL + "/orphan", patch(`{"orphaned":false}`), 422,
			"only the controller may clear spec.orphaned",
		},
		{
			"an orphan taken over, and orphaned still", swap, blocksURL + "/orphan", patch(`{"node":"n1","claim":"3"}`), 422,
			"only the controller may mark a block orphaned",
		},
		{"an orphan taken over", swap, blocksURL + "/orphan", patch(`{"node":"n1","claim":"3","orphaned":false}`), 200, ""},
		{"its own deleted", "DELETE", blocksURL + "/b1", "", 200, ""},
		{"a block patched", "PATCH", blocksURL + "/b2", patch(`{"claim":"4"}`), 403, "cannot patch"},
		{"pools read", "GET", poolsURL, "", 200, ""},
		{"a pool", "POST", poolsURL, pool("other", "{}"), 403, "cannot create"},
		{"a pool changed", swap, poolsURL + "/p", patch(`{"disabled":true}`), 403, "cannot update"},
		{"a pool deleted", "DELETE", poolsURL + "/p", "", 403, "cannot delete"},
		{"its node waits for addresses", swapStatus, poolsURL + "/p", status(`{"wanted":["n2","n1"]}`), 200, ""},
		{"and does not any more", swapStatus, poolsURL + "/p", status(`{"wanted":["n2"]}`), 200, ""},
		{
			"another node waits",
			swapStatus,
			poolsURL + "/p",
			status(`{"wanted":["n2","n3"]}`),
			422,
			"only its own node in the pool's status.wanted",
		},
		{
			"another node does not wait any more", swapStatus, poolsURL + "/p", status(`{"wanted":["n1"]}`), 422,
			"only its own node in the pool's status.wanted",
		},
		{
			"the conditions of a pool",
			swapStatus,
			poolsURL + "/p",
			status(
				`{"wanted":["n2"],"conditions":[{"type":"Allocatable","status":"False","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
			),
			422,
			"the conditions of a pool",
		},
		{"a range asked for", "POST", requestsURL, request("r1", "n1"), 201, ""},
		{
			"a range asked for in another's name",
			"POST",
			requestsURL,
			request("r2", "n2"),
			422,
			"requests for its own node only",
		},
		{"what is asked for deleted", "DELETE", requestsURL + "/r1", "", 403, "cannot delete"},
		{"Calico's pools read", "GET", "/apis/crd.projectcalico.org/v1/ippools", "", 403, "cannot list"},
		{"Calico's pools written", "POST", "/apis/crd.projectcalico.org/v1/ippools", "{}", 403, "cannot create"},
		{"its own endpoints", "POST", endpointsURL, endpoints("n1"), 201, ""},
		{"another node's endpoints", "POST", endpointsURL, endpoints("n2"), 422, "this is n2, the token is of n1"},
		{"endpoints deleted", "DELETE", endpointsURL + "/n1", "", 403, "cannot delete"},
		{"its own listener", "POST", listenersURL, listener("n1"), 201, ""},
		{"its key", swap, listenersURL + "/n1", patch(`{"key":"` + strings.Repeat("B", 43) + `="}`), 200, ""},
		{"a key that is none", swap, listenersURL + "/n1", patch(`{"key":"none"}`), 422, "spec.key"},
		{"another node's listener", "POST", listenersURL, listener("n3"), 422, "this is n3, the token is of n1"},
		{"its key replaced", swap, listenersURL + "/n2", patch(`{"key":"` + strings.Repeat("B", 43) + `="}`), 422, "this is n2, the token is of n1"},
		{"its deletion", "DELETE", listenersURL + "/n2", "", 422, "this is n2, the token is of n1"},
		{"its own listener deleted", "DELETE", listenersURL + "/n1", "", 200, ""},
		{"listeners read", "GET", listenersURL, "", 403, "cannot list"},
		{"network policies read", "GET", "/apis/networking.k8s.io/v1/networkpolicies", "", 200, ""},
		{
			"a network policy made", "POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "{}", 403,
			"cannot create",
		},
		{"reservations read", "GET", "/apis/weft.dev/v1alpha1/addressreservations", "", 200, ""},
		{"a reservation made", "POST", "/apis/weft.dev/v1alpha1/addressreservations", "{}", 403, "cannot create"},
		{"the Lease", "POST", leasesURL, lease("weft-controller"), 403, "cannot create"},
		{"the Lease read", "GET", leasesURL + "/weft-controller", "", 200, ""},
		{"the Lease taken", "PUT", leasesURL + "/weft-controller", lease("weft-controller"), 403, "cannot update"},
		{"another Lease read", "GET", leasesURL + "/kube-scheduler", "", 403, "cannot get"},
		{"Calico's DaemonSet read", "GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-node", "", 404, ""},
		{"another DaemonSet read", "GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/weft", "", 403, "cannot get"},
	}
}
