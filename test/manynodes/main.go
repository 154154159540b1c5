// SPDX-License-Identifier: Apache-2.0

// Command manynodes is a cluster of many nodes on one host, for tests of programs that ask agents and the datastore: the
// directory of a lab whose agents answer with invented facts. No pod runs, and no packet flows.
//
//	manynodes -dir DIR -nodes 1000 -pods 20    prints "ready", and serves until it is interrupted
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/observer"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/plan/explain"
)

// cluster is the invented one.
type cluster struct {
	dir         string
	nodes, pods int // pods of each node
}

func main() {
	var c cluster
	flag.StringVar(&c.dir, "dir", "", "`DIR` to create")
	flag.IntVar(&c.nodes, "nodes", 1000, "number of nodes")
	flag.IntVar(&c.pods, "pods", 20, "number of pods per node, at most 200")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manynodes:", err)
		os.Exit(1)
	}
}

func (c cluster) run(ctx context.Context) error {
	if c.dir == "" || c.nodes < 1 || c.pods > 200 {
		return errors.New("-dir is needed, -nodes is at least 1, and -pods at most 200")
	}
	if err := c.writeObjects(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	var group errgroup.Group
	for i := range c.nodes {
		socket := adminapi.InStateDir(filepath.Join(c.dir, "nodes", name(i), "agent"))
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			return err
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		group.Go(func() error { return c.agent(i).ServeOn(ctx, l, log) })
	}
	if err := os.WriteFile(filepath.Join(c.dir, "lab.json"), []byte("{}"), 0o600); err != nil {
		return err
	}
	fmt.Println("ready")
	return group.Wait()
}

func name(node int) string { return fmt.Sprintf("node%d", node+1) }

// namespaces is their number: pods of a node are spread over them.
const namespaces = 40

// pod returns the namespace and the name of a pod. app is web, api or db.
func pod(node, i int) (namespace, name, app string) {
	app = []string{"web", "api", "db"}[i%3]
	return fmt.Sprintf("team%d", (node+i)%namespaces+1), fmt.Sprintf("%s-%d-%d", app, node+1, i), app
}

func addr(node, i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(node >> 8), byte(node), byte(i + 2)})
}

func nodeAddr(node int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 18, byte(node >> 8), byte(node)})
}

// block returns the addresses of a node's pods.
func block(node int) netip.Prefix {
	p, err := addr(node, 0).Prefix(24)
	if err != nil {
		panic(err) // 24 is a length of a prefix
	}
	return p
}

// agent returns the answers of a node's agent.
func (c cluster) agent(i int) adminapi.Routes {
	status := nodestatus.Status{
		Node: name(i), Version: "v0.1.0", Attachments: c.pods, Peers: c.nodes - 1, Reached: c.nodes - 1, MTU: 1450,
		Blocks: 1, Allocated: c.pods, Free: 254 - c.pods, Connections: 900 + i, MaxConnections: 65536,
	}
	if i%97 == 5 {
		status.Findings = []nodestatus.Finding{{
			Level: nodestatus.Warn, Check: "kernel", Message: "the neighbor table is 85 % full", Hint: "raise net.ipv4.neigh.default.gc_thresh3",
		}}
	}
	return adminapi.Routes{
		"GET " + explainer.RouteFacts: func(r *http.Request) (any, error) {
			facts := c.facts(i)
			if r.URL.Query().Get(explainer.QuerySummary) != "" {
				facts = facts.Summary()
			}
			return facts, nil
		},
		"GET " + adminapi.RouteStatus: func(*http.Request) (any, error) { return status, nil },
		"GET " + policy.Prefix + "/summary": func(*http.Request) (any, error) {
			return policy.Summary{Node: name(i), Known: true, Interfaces: c.pods}, nil
		},
		"GET " + observer.RoutePath: func(*http.Request) (any, error) {
			return adminapi.Stream(func(ctx context.Context, lines *adminapi.Lines) error { return c.flows(ctx, i, lines) }), nil
		},
	}
}

func (c cluster) facts(i int) explain.Node {
	n := explain.Node{Name: name(i), Addrs: []netip.Addr{nodeAddr(i)}, Policy: true}
	for p := range c.pods {
		namespace, pod, _ := pod(i, p)
		n.Pods = append(n.Pods, explain.Pod{
			Name: namespace + "/" + pod, Stage: "done",
			Interfaces: []explain.Interface{{
				Name: "eth0", HostLink: fmt.Sprintf("veth%d", p), Addrs: []netip.Prefix{netip.PrefixFrom(addr(i, p), 32)},
			}},
		})
	}
	for j := range c.nodes {
		if j != i {
			n.Peers = append(n.Peers, explain.Peer{Name: name(j), Paths: []explain.Path{{
				CIDR: block(j), Link: "vxlan.weft", Tunnel: true, Far: nodeAddr(j), Gateway: addr(j, -2),
			}}})
		}
	}
	return n
}

// flows sends a flow every few seconds, to the node's neighbor.
func (c cluster) flows(ctx context.Context, i int, lines *adminapi.Lines) error {
	begin := flow.Line{Begin: &flow.Begin{Node: name(i), Addrs: []netip.Addr{nodeAddr(i)}, Level: flow.LevelOff}}
	if err := errors.Join(lines.Send(begin), lines.Send(flow.Line{Known: true}), lines.Flush()); err != nil {
		return err
	}
	end := func(node, p int, port uint16) flow.Endpoint {
		namespace, pod, _ := pod(node, p)
		return flow.Endpoint{
			Addr: addr(node, p), Port: port,
			Identity: flow.Identity{Kind: flow.PodEnd, Name: namespace + "/" + pod, Node: name(node)},
		}
	}
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(3 * time.Second):
		}
		r := flow.Record{
			Time: time.Now(), Node: name(i), Kind: flow.New, Protocol: "tcp", Direction: flow.Egress, Verdict: flow.Allowed,
			From: end(i, n%c.pods, 40000), To: end((i+1)%c.nodes, (n+1)%c.pods, 443),
		}
		if err := errors.Join(lines.Send(flow.Line{Flow: &r}), lines.Flush()); err != nil {
			return err
		}
	}
}

type fields = map[string]any

// writeObjects writes the datastore.
func (c cluster) writeObjects() error {
	objects := []fields{}
	meta := func(namespace, name string, labels fields) fields {
		m := fields{"name": name, "uid": fmt.Sprintf("uid-%s-%s", namespace, name), "labels": labels}
		if namespace != "" {
			m["namespace"] = namespace
		}
		return m
	}
	policy := func(namespace, name string, spec fields) {
		objects = append(objects, fields{
			"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta(namespace, name, nil), "spec": spec,
		})
	}
	selects := func(app string) fields { return fields{"matchLabels": fields{"app": app}} }
	from := func(peer fields, port int) []fields {
		return []fields{{"from": []fields{peer}, "ports": []fields{{"port": port, "protocol": "TCP"}}}}
	}
	for i := range namespaces {
		namespace := fmt.Sprintf("team%d", i+1)
		objects = append(objects, fields{"apiVersion": "v1", "kind": "Namespace", "metadata": meta("", namespace, fields{"team": namespace})})
		if i%2 == 1 { // every second namespace has no policy
			continue
		}
		policy(namespace, "deny-all", fields{"podSelector": fields{}, "policyTypes": []string{"Ingress"}})
		policy(namespace, "web", fields{"podSelector": selects("web"), "ingress": from(fields{"namespaceSelector": fields{}}, 443)})
		policy(namespace, "api", fields{"podSelector": selects("api"), "ingress": from(fields{"podSelector": selects("web")}, 8080)})
		policy(namespace, "db", fields{"podSelector": selects("db"), "ingress": from(fields{"podSelector": selects("api")}, 5432)})
	}
	const pool = "pods"
	objects = append(objects, fields{
		"apiVersion": "weft.dev/v1alpha1", "kind": "AddressPool", "metadata": meta("", pool, nil),
		"spec": fields{"regions": []fields{{"cidr": "10.0.0.0/8", "blockSize": 24}}},
	})
	for i := range c.nodes {
		if i%100 != 0 { // the pods of the others have addresses of no block, which are findings
			objects = append(objects, fields{
				"apiVersion": "weft.dev/v1alpha1", "kind": "AddressBlock",
				"metadata": meta("", store.BlockName(pool, block(i)), nil),
				"spec":     fields{"pool": pool, "cidr": block(i).String(), "node": name(i), "claim": fmt.Sprintf("claim%d", i)},
			})
		}
		objects = append(objects, fields{
			"apiVersion": "v1", "kind": "Node",
			"metadata": meta("", name(i), fields{"topology.kubernetes.io/zone": fmt.Sprintf("zone-%c", 'a'+i%8)}),
			"status":   fields{"addresses": []fields{{"type": "InternalIP", "address": nodeAddr(i).String()}}},
		})
		for p := range c.pods {
			namespace, podName, app := pod(i, p)
			objects = append(objects, fields{
				"apiVersion": "v1", "kind": "Pod", "metadata": meta(namespace, podName, fields{"app": app}),
				"spec": fields{"nodeName": name(i), "containers": []fields{{
					"name": "main", "image": "registry.example/main", "ports": []fields{{"containerPort": 443, "protocol": "TCP"}},
				}}},
				"status": fields{"phase": "Running", "podIP": addr(i, p).String(), "podIPs": []fields{{"ip": addr(i, p).String()}}},
			})
		}
	}
	return writeFiles(filepath.Join(c.dir, "store"), objects)
}

// writeFiles writes lists of objects.
func writeFiles(dir string, objects []fields) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	const perFile = 2000
	for n := 0; len(objects) > 0; n++ {
		part := objects[:min(perFile, len(objects))]
		objects = objects[len(part):]
		b, err := json.Marshal(fields{"apiVersion": "v1", "kind": "List", "items": part})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.json", n)), b, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
