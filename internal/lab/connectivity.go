// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/netns"
)

// TestConnectivity tests connectivity between all nodes, pods and VMs of the lab. A node is probed at its addresses on
// every wire.
func (d Dir) TestConnectivity(ctx context.Context, timeout time.Duration) (connectivity.Report, error) {
	st, err := d.Status(ctx)
	if err != nil {
		return connectivity.Report{}, err
	}
	r, err := st.testConnectivity(ctx, timeout)
	if err != nil {
		return r, err
	}
	if r.Networks, err = st.testNetworks(ctx, timeout); err != nil {
		return r, err
	}
	policies, err := st.skippedPolicies()
	r.Skipped = slices.Concat(st.Skipped, policies)
	return r, err
}

func (st Status) testConnectivity(ctx context.Context, timeout time.Duration) (connectivity.Report, error) {
	var endpoints []connectivity.Endpoint
	defer func() {
		for _, e := range endpoints {
			if e.NS != nil {
				_ = e.NS.Close()
			}
		}
	}()
	add := func(name, path string, addrs []netip.Addr, problem string) {
		e := connectivity.Endpoint{Name: name, Addrs: addrs, Problem: problem}
		if problem == "" {
			var err error
			if e.NS, err = netns.Open(path); err != nil {
				e.Problem = err.Error()
			}
		}
		endpoints = append(endpoints, e)
	}
	for _, n := range st.Nodes {
		add(n.Name, n.Netns, slices.Concat(n.Wires...), "")
	}
	for _, p := range st.Pods {
		if p.finished() || st.isVMPod(p) {
			continue
		}
		add(p.Namespace+"/"+p.Name, p.Netns, p.IPs, p.problem())
	}
	defer st.addVMs(ctx, &endpoints)()
	return connectivity.Run(ctx, connectivity.Config{Endpoints: endpoints, Timeout: timeout, Expect: st.expect("")})
}

// problem returns why a pod cannot be probed, or "".
func (p PodStatus) problem() string {
	switch {
	case p.State == stateMissing:
		return fmt.Sprintf("pod %s/%s is not running on %s", p.Namespace, p.Name, p.Node)
	case p.ID == "" || p.Netns == "" || len(p.IPs) == 0:
		return strings.TrimSuffix(
			fmt.Sprintf("pod %s/%s is %s and has no network: %s", p.Namespace, p.Name, p.State, p.Reason), ": ",
		)
	}
	return ""
}

// finished reports whether a pod has succeeded or failed.
func (p PodStatus) finished() bool { return p.State == "Succeeded" || p.State == "Failed" }

// reportAfter is the time after which up reports that it waits for connectivity.
const reportAfter = 5 * time.Second

// awaitConnectivity waits until all nodes reach each other's pods, but for nodes that have failed.
func (u Up) awaitConnectivity(ctx context.Context, failedNodes map[string]bool) error {
	st, err := u.Dir.Status(ctx)
	if err != nil {
		return err
	}
	st.Nodes = slices.DeleteFunc(st.Nodes, func(n NodeStatus) bool { return failedNodes[n.Name] })
	st.Pods = slices.DeleteFunc(st.Pods, func(p PodStatus) bool { return failedNodes[p.Node] })
	sample := st.onePodPerNode()
	started, reported := time.Now(), false
	for timeout := 300 * time.Millisecond; ; timeout = min(timeout+timeout/4, 2*time.Second) {
		r, err := sample.testConnectivity(ctx, timeout)
		if err != nil {
			return err
		}
		if r.OK() {
			return nil
		}
		waited := time.Since(started)
		if waited > u.ConnectivityTimeout {
			return incomplete(
				fmt.Sprintf("see `weft lab reach --dir %[1]s`; take it down with `weft lab down --dir %[1]s`", u.Dir),
				"after %.0f s %s", waited.Seconds(), unexpected(r),
			)
		}
		if waited > reportAfter && !reported {
			reported = true
			u.Logf("waiting: %s", unexpected(r))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unexpected describes the results that are not as expected.
func unexpected(r connectivity.Report) string {
	var wrong []string
	for _, f := range r.Failed {
		if f.Expected {
			wrong = append(wrong, fmt.Sprintf("%s to %s by %s: %s", f.From, f.To, f.Proto, f.Error))
		}
	}
	for _, f := range r.Leaked {
		wrong = append(wrong, fmt.Sprintf("%s to %s by %s: %s", f.From, f.To, f.Proto, f.Error))
	}
	return fmt.Sprintf("%d of %d pairs are not as expected, for example %s", len(wrong), r.Pairs, wrong[0])
}

// onePodPerNode returns the status with all nodes but only one pod of each, which suffices to test every route.
func (st Status) onePodPerNode() Status {
	seen := map[string]bool{}
	var pods []PodStatus
	for _, p := range st.Pods {
		if !seen[p.Node] && !p.HostNetwork && !p.finished() && !st.isVMPod(p) && p.problem() == "" {
			seen[p.Node] = true
			pods = append(pods, p)
		}
	}
	st.Pods, st.VMs = pods, nil
	return st
}
