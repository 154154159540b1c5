// SPDX-License-Identifier: Apache-2.0

package naive_test

import "github.com/weft-net/weft/internal/plan/policy/naive"

type testCase struct {
	name       string
	policies   []string
	change     func(*naive.World)
	pass, stop []string
}

const isolateA = `{metadata: {name: isolate, namespace: x}, spec: {podSelector: {matchLabels: {pod: a}}}}`

func ofA(rest string) string {
	return `{metadata: {name: of-a, namespace: x}, spec: {podSelector: {matchLabels: {pod: a}}, ` + rest + `}}`
}

func cases() []testCase {
	return append([]testCase{
		{name: "no policies", pass: []string{"x/b x/a TCP/80", "out x/a UDP/53", "x/a out ICMP", "node2 x/a TCP/80"}},
		{
			name: "isolated one way", policies: []string{isolateA},
			stop: []string{"x/b x/a TCP/80", "out x/a TCP/80", "x/b x/a ICMP", "x/b6 x/a6 TCP/80", "node2 x/a TCP/80"},
			pass: []string{"x/a x/b TCP/80", "node1 x/a TCP/80", "x/b z/a TCP/80", "x/a x/a TCP/80"},
		},
		{
			name: "types default: egress only with rules", policies: []string{ofA(`egress: [{to: [{podSelector: {}}]}]`)},
			stop: []string{"x/b x/a TCP/80", "x/a z/a TCP/80", "x/a out UDP/53"}, pass: []string{"x/a x/b TCP/80"},
		},
		{
			name: "types: egress alone", policies: []string{ofA(`policyTypes: [Egress]`)},
			stop: []string{"x/a x/b TCP/80", "x/a node1 TCP/80"}, pass: []string{"x/b x/a TCP/80"},
		},
		{
			name:     "types: rules of a type that is not named",
			policies: []string{ofA(`policyTypes: [Ingress], egress: [{to: [{podSelector: {}}]}]`)},
			pass:     []string{"x/a z/a TCP/80"}, stop: []string{"z/a x/a TCP/80"},
		},
		{
			name: "all pods of the namespace", policies: []string{
				`{metadata: {name: p, namespace: x}, spec: {podSelector: {}}}`,
			},
			stop: []string{"x/a x/b TCP/80", "z/a x/c TCP/80"}, pass: []string{"x/a z/a TCP/80"},
		},
		{
			name: "an empty rule allows all", policies: []string{ofA(`ingress: [{}]`)},
			pass: []string{"x/b x/a TCP/80", "out x/a ICMP", "z/a x/a SCTP/80"},
		},
		{
			name: "policies add up", policies: []string{
				isolateA, ofA(`ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]`),
				ofA(`ingress: [{ports: [{port: 80}]}]`),
			},
			pass: []string{"x/b x/a TCP/81", "x/c x/a TCP/80", "out x/a TCP/80"}, stop: []string{"x/c x/a TCP/81"},
		},
		{
			name: "both ends must allow", policies: []string{
				ofA(`ingress: [{}]`), `{metadata: {name: q, namespace: z}, spec: {podSelector: {}, policyTypes: [Egress]}}`,
			},
			stop: []string{"z/a x/a TCP/80"}, pass: []string{"x/b x/a TCP/80"},
		},
		{
			name: "host network", change: func(w *naive.World) { w.Pods[1].HostNetwork, w.Pods[1].Addrs = true, nil },
			policies: []string{
				`{metadata: {name: p, namespace: x}, spec: {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {}}]}]}}`,
			},
			stop: []string{"node2 x/a TCP/80", "x/a node2 TCP/80"}, pass: []string{"node2 z/b TCP/80"},
		},
		{
			name: "completed pods", change: func(w *naive.World) { w.Pods[1].Done = true },
			policies: []string{ofA(`ingress: [{from: [{podSelector: {}}]}]`)}, stop: []string{"x/b x/a TCP/80"},
			pass: []string{"x/c x/a TCP/80"},
		},
	}, append(append(peerCases(), portCases()...), clusterCases()...)...)
}

func peerCases() []testCase {
	return []testCase{
		{
			name: "pods of the own namespace", policies: []string{
				ofA(`ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: In, values: [b]}]}}]}]`),
			},
			pass: []string{"x/b x/a TCP/80"}, stop: []string{"z/b x/a TCP/80", "x/c x/a TCP/80"},
		},
		{
			name: "namespaces", policies: []string{
				ofA(`ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}}]}]`),
			},
			pass: []string{"z/a x/a TCP/80", "z/b x/a TCP/80"}, stop: []string{"x/b x/a TCP/80", "out x/a TCP/80"},
		},
		{
			name: "both are and", policies: []string{
				ofA(`ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}, podSelector: {matchLabels: {pod: b}}}]}]`),
			},
			pass: []string{"z/b x/a TCP/80"}, stop: []string{"z/a x/a TCP/80", "x/b x/a TCP/80"},
		},
		{
			name: "a list is or", policies: []string{
				ofA(`ingress: [{from: [{namespaceSelector: {matchLabels: {ns: z}}}, {podSelector: {matchLabels: {pod: b}}}]}]`),
			},
			pass: []string{"z/a x/a TCP/80", "x/b x/a TCP/80"}, stop: []string{"x/c x/a TCP/80"},
		},
		{
			name: "all namespaces are pods only", policies: []string{ofA(`ingress: [{from: [{namespaceSelector: {}}]}]`)},
			pass: []string{"z/a x/a TCP/80", "x/b x/a TCP/80"}, stop: []string{"out x/a TCP/80", "node2 x/a TCP/80"},
		},
		{
			name: "operators", policies: []string{
				ofA(
					`ingress: [{from: [{podSelector: {matchExpressions: [{key: pod, operator: NotIn, values: [c]}, {key: no, operator: DoesNotExist}, {key: pod, operator: Exists}]}}]}]`,
				),
			},
			pass: []string{"x/b x/a TCP/80"}, stop: []string{"x/c x/a TCP/80"},
		},
		{
			name: "not in is true of what has no such label",
			policies: []string{
				ofA(`ingress: [{from: [{podSelector: {matchExpressions: [{key: no, operator: NotIn, values: [c]}]}}]}]`),
			},
			pass: []string{"x/b x/a TCP/80"},
		},
		{
			name: "blocks", policies: []string{
				ofA(
					`egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.0/29]}}, {ipBlock: {cidr: 10.0.0.2/32}}, {ipBlock: {cidr: "2001:db8::/32"}}]}]`,
				),
			},
			pass: []string{"x/a x/b TCP/80", "x/a out6 TCP/80"},
			stop: []string{"x/a out TCP/80", "x/a x/c TCP/80", "x/a x/b6 TCP/80"},
		},
		{
			name: "an exception is of its block", policies: []string{
				ofA(
					`egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.7/32]}}, {ipBlock: {cidr: 203.0.113.7/32}}]}]`,
				),
			},
			pass: []string{"x/a out TCP/80"},
		},
		{
			name: "networks", policies: []string{
				"networks: x/net\n" + ofA(`ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]`),
			},
			pass: []string{"x/b@net x/a@net TCP/80", "z/a x/a TCP/80"}, stop: []string{"z/a@net x/a@net TCP/80"},
		},
		{
			name: "a policy is of the cluster's network", policies: []string{isolateA}, pass: []string{"x/b@net x/a@net TCP/80"},
			stop: []string{"x/b x/a TCP/80"},
		},
	}
}

func portCases() []testCase {
	return []testCase{
		{
			name: "the protocol's default", policies: []string{ofA(`ingress: [{ports: [{port: 80}]}]`)},
			pass: []string{"x/b x/a TCP/80"}, stop: []string{"x/b x/a UDP/80", "x/b x/a SCTP/80", "x/b x/a ICMP"},
		},
		{
			name: "UDP opens no TCP", policies: []string{ofA(`ingress: [{ports: [{port: 80, protocol: UDP}]}]`)},
			pass: []string{"x/b x/a UDP/80"}, stop: []string{"x/b x/a TCP/80"},
		},
		{
			name: "SCTP opens no TCP", policies: []string{ofA(`ingress: [{ports: [{protocol: SCTP}]}]`)},
			pass: []string{"x/b x/a SCTP/9"}, stop: []string{"x/b x/a TCP/9", "x/b x/a ICMP"},
		},
		{
			name: "a range", policies: []string{ofA(`ingress: [{ports: [{port: 80, endPort: 90}]}]`)},
			pass: []string{"x/b x/a TCP/80", "x/b x/a TCP/90"}, stop: []string{"x/b x/a TCP/79", "x/b x/a TCP/91"},
		},
		{
			name: "a name is each receiver's own", policies: []string{
				`{metadata: {name: p, namespace: x}, spec: {podSelector: {matchLabels: {pod: b}}, egress: [{ports: [{port: web}]}]}}`,
			},
			pass: []string{"x/b x/a TCP/80", "x/b z/a TCP/8080"},
			stop: []string{"x/b x/a TCP/8080", "x/b z/a TCP/80", "x/b x/c TCP/80", "x/b out TCP/80"},
		},
		{
			name: "peers and ports are and", policies: []string{
				ofA(`ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}]}]`),
			},
			pass: []string{"x/b x/a TCP/80"}, stop: []string{"x/c x/a TCP/80", "x/b x/a TCP/81"},
		},
	}
}

func cluster(name, tier, priority, rest string) string {
	return `{metadata: {name: ` + name + `}, spec: {tier: ` + tier + `, priority: ` + priority +
		`, subject: {pods: {namespaceSelector: {matchLabels: {ns: x}}, podSelector: {matchLabels: {pod: a}}}}, ` + rest + `}}`
}

func clusterCases() []testCase {
	denyZ, acceptZ := `ingress: [{action: Deny, from: [{namespaces: {matchLabels: {ns: z}}}]}]`,
		`ingress: [{action: Accept, from: [{namespaces: {matchLabels: {ns: z}}}]}]`
	allowAll := ofA(`ingress: [{}]`)
	return []testCase{
		{
			name: "admin before network policy", policies: []string{allowAll, cluster("p", "Admin", "5", denyZ)},
			stop: []string{"z/a x/a TCP/80"}, pass: []string{"x/b x/a TCP/80", "out x/a TCP/80", "node1 x/a TCP/80"},
		},
		{
			name: "admin accepts", policies: []string{isolateA, cluster("p", "Admin", "5", acceptZ)},
			pass: []string{"z/a x/a TCP/80"}, stop: []string{"x/b x/a TCP/80"},
		},
		{
			name: "priority", policies: []string{cluster("p", "Admin", "9", acceptZ), cluster("q", "Admin", "3", denyZ)},
			stop: []string{"z/a x/a TCP/80"},
		},
		{
			name: "pass to the next tier", policies: []string{
				cluster(
					"p", "Admin", "1",
					`ingress: [{action: Pass, from: [{pods: {podSelector: {matchLabels: {pod: b}}}}]}, {action: Deny, from: [{namespaces: {}}]}]`,
				),
			},
			pass: []string{"z/b x/a TCP/80", "out x/a TCP/80"}, stop: []string{"z/a x/a TCP/80"},
		},
		{
			name: "baseline after network policy", policies: []string{
				cluster("p", "Baseline", "1", denyZ), ofA(`ingress: [{from: [{namespaceSelector: {}}]}]`),
			}, pass: []string{"z/a x/a TCP/80"},
		},
		{
			name: "baseline alone", policies: []string{cluster("p", "Baseline", "1", denyZ)}, stop: []string{"z/a x/a TCP/80"},
			pass: []string{"x/b x/a TCP/80"},
		},
		{
			name: "egress to networks and nodes", policies: []string{
				cluster(
					"p", "Admin", "1",
					`egress: [{action: Accept, to: [{nodes: {matchLabels: {node: node1}}}]}, {action: Deny, to: [{networks: [0.0.0.0/0]}]}]`,
				),
			},
			pass: []string{"x/a node1 TCP/80", "x/a out6 TCP/80", "x/a x/b6 TCP/1"},
			stop: []string{"x/a node2 TCP/80", "x/a x/b TCP/80"},
		},
		{
			name: "protocols", policies: []string{
				cluster(
					"p", "Admin", "1",
					`ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 81}}}, {udp: {destinationPort: {range: {start: 5, end: 9}}}}, {destinationNamedPort: web}, {sctp: {}}]}]`,
				),
			},
			stop: []string{"x/b x/a TCP/81", "x/b x/a UDP/9", "x/b x/a TCP/80", "x/b x/a SCTP/3"},
			pass: []string{"x/b x/a TCP/9", "x/b x/a UDP/81", "x/b x/a ICMP"},
		},
		{
			name:     "host network is no subject and no peer",
			change:   func(w *naive.World) { w.Pods[3].HostNetwork, w.Pods[3].Addrs = true, nil },
			policies: []string{cluster("p", "Admin", "5", denyZ)}, pass: []string{"node2 x/a TCP/80"},
			stop: []string{"z/b x/a TCP/80"},
		},
	}
}
