// SPDX-License-Identifier: Apache-2.0

package path

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/weft-net/weft/internal/bench/subprocess"
	"github.com/weft-net/weft/internal/kernel/fastpath"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/mesh"
	"github.com/weft-net/weft/internal/state"
)

// weft creates weft's design: each node's mesh by the reconciler, in its own process, and pods by weft's plugin.
func (b *bench) weft(ctx context.Context, w *world) error {
	mtu := 0
	for i := range w.nodes {
		o := nodeOrder{Mesh: nodeMesh{Backend: w.backend, Masquerade: []netip.Prefix{clusterCIDR()}}}
		o.Cluster.Self = nodeName(i)
		for j, n := range w.nodes {
			o.Cluster.Nodes = append(o.Cluster.Nodes, model.Node{
				Name: nodeName(j), Addrs: []netip.Addr{wireAddr(j)}, PodCIDRs: []netip.Prefix{n.cidr},
			})
		}
		p, err := subprocess.Start(w.nodes[i].ns, -1, b.cfg.Self, "part", "node")
		if err != nil {
			return err
		}
		w.processes = append(w.processes, p)
		var result nodeOutcome
		if err := p.Send(o); err != nil {
			return err
		}
		if err := p.Receive(&result); err != nil {
			return err
		}
		if result.Error != "" {
			return fmt.Errorf("node %s: %s", nodeName(i), result.Error)
		}
		mtu = result.MTU
		if !w.guarded {
			if err := w.nodes[i].ns.Do(func() error {
				return exec.CommandContext(ctx, "nft", "delete", "table", "inet", mesh.GuardTable).Run()
			}); err != nil {
				return fmt.Errorf("node %s: delete source guard of tunnels: %w", nodeName(i), err)
			}
		}
	}
	for i := range w.nodes {
		for j := range 2 {
			if err := b.attachPod(ctx, w, &w.nodes[i], podName(i, j), mtu); err != nil {
				return err
			}
		}
	}
	if w.plugin == "bridge" { // its guard is the plugin's
		return nil
	}
	for i := range w.nodes {
		if err := w.programPods(i); err != nil {
			return err
		}
		if w.unfiltered {
			if err := w.nodes[i].ns.Do(func() error {
				return exec.CommandContext(ctx, "nft", "flush", "ruleset").Run()
			}); err != nil {
				return fmt.Errorf("node %s: flush the rules: %w", nodeName(i), err)
			}
		}
	}
	return nil
}

// programPods makes a node's process write the rules of the node's routed pods, and keep their fast path.
func (w *world) programPods(i int) error {
	o := podsOrder{Policies: w.policies, Guarded: w.guarded}
	for j, n := range w.nodes {
		for k, p := range n.pods {
			o.Pods = append(o.Pods, nodePod{Name: podName(j, k), Node: nodeName(j), Link: p.link, MAC: p.mac, Addr: p.addr})
		}
	}
	if w.fast {
		o.FastPath = []fastpath.Link{{Name: "eth0", How: fastpath.ToNeighbor}}
		if w.backend == "vxlan" {
			o.FastPath[0].Name = "flannel.1"
		}
		for _, p := range w.nodes[i].pods {
			o.FastPath = append(o.FastPath, fastpath.Link{Name: p.link, How: fastpath.ToPeer, Addrs: []netip.Addr{p.addr}})
		}
	}
	var result nodeOutcome
	if err := w.processes[i].Send(o); err != nil {
		return err
	}
	if err := w.processes[i].Receive(&result); err != nil {
		return err
	}
	if result.Error != "" {
		return fmt.Errorf("node %s: pods: %s", nodeName(i), result.Error)
	}
	return nil
}

func nodeName(i int) string { return string(rune('a' + i)) }

func podName(node, pod int) string { return fmt.Sprintf("pod%d-%d", node, pod) }

// attachPod executes weft's plugin for one pod.
func (b *bench) attachPod(ctx context.Context, w *world, n *node, id string, mtu int) error {
	ns, err := w.namespace()
	if err != nil {
		return err
	}
	conf := map[string]any{
		"cniVersion": "1.0.0", "name": "pods", "type": w.plugin, "ipMasq": false,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(w.dir, "ipam", n.cidr.Addr().String()),
			"ranges": []any{[]any{map[string]any{"subnet": n.cidr.String()}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
	}
	if mtu > 0 {
		conf["mtu"] = mtu
	}
	if w.plugin == "bridge" {
		conf["bridge"], conf["isDefaultGateway"], conf["hairpinMode"], conf["guard"] = "cni0", true, true, w.guarded
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.cfg.BinDir, w.plugin))
	cmd.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + id, "CNI_IFNAME=eth0", "CNI_PATH=" + b.cfg.BinDir,
		fmt.Sprintf("CNI_NETNS=/proc/%d/fd/%d", os.Getpid(), ns.Fd()),
		"WEFT_JOURNAL_DIR=" + filepath.Join(w.dir, "journal", n.cidr.Addr().String()),
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &out
	if err = n.ns.Do(func() error {
		if err := enableBridgeNetfilter(); err != nil { // as on any Kubernetes node
			return err
		}
		return cmd.Start()
	}); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("plugin %s: %w: %s", w.plugin, err, out.String())
	}
	var result struct {
		Interfaces []struct {
			Name string    `json:"name"`
			MAC  state.MAC `json:"mac"`
		} `json:"interfaces"`
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil || len(result.IPs) != 1 {
		return fmt.Errorf("plugin %s: no address in %s", w.plugin, out.String())
	}
	p := pod{ns: ns, addr: result.IPs[0].Address.Addr()}
	if last := len(result.Interfaces) - 1; last >= 0 { // the node's end, and the pod's last
		p.link, p.mac = result.Interfaces[0].Name, result.Interfaces[last].MAC
	}
	n.pods = append(n.pods, p)
	return nil
}
