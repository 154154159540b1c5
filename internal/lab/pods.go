// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
)

const (
	// startLimit is how long a pod may take to start its containers.
	startLimit = time.Minute
	// parallel is how many nodes or pods are worked on at a time.
	parallel = 8
)

// Sandboxes talks to a node's sandbox runtime.
func (d Dir) Sandboxes(node string) *sandbox.Client { return sandbox.NewClient(d.sandboxDir(node)) }

func (d Dir) sandboxDir(node string) string { return d.Node(node, "sandbox") }

// runPods runs each pod on its node, and writes its addresses into the store. Pods that do not run are a standingError:
// the others do.
func (u Up) runPods(ctx context.Context, l Layout, pods []model.Pod) error {
	s, err := dir.Open(u.Dir.Store())
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	bad := make([]string, len(pods))
	for i, p := range pods {
		group.Go(func() error {
			box, err := u.runPod(ctx, s, p)
			if err == nil {
				err = publish(ctx, s, l.find(p.Node), box)
			}
			if err != nil && ctx.Err() == nil {
				bad[i] = fmt.Sprintf("pod %s/%s on %s: %v", p.Namespace, p.Name, p.Node, err)
				u.Say("%s", bad[i])
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	bad = slices.DeleteFunc(bad, func(s string) bool { return s == "" })
	if len(bad) == 0 {
		return nil
	}
	hint := fmt.Sprintf("correct the manifest; see `weft lab status --dir %[1]s` and %[1]s/nodes/NODE/logs", u.Dir)
	return standing(hint, "%d of %d pods do not run: %s", len(bad), len(pods), strings.Join(bad, "; "))
}

func (u Up) runPod(ctx context.Context, s *dir.Store, p model.Pod) (sandbox.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	o, err := s.Get(store.PodKey(p.Namespace, p.Name))
	if err != nil {
		return sandbox.Pod{}, err
	}
	runtime := u.Dir.Sandboxes(p.Node)
	applied, err := runtime.Apply(ctx, o.Raw, "manifest")
	if err != nil {
		return sandbox.Pod{}, err
	}
	for _, a := range applied.Pods {
		// That no image is pulled is true of all pods; up says it once.
		rest := slices.DeleteFunc(a.Ignored, func(s string) bool { return strings.HasPrefix(s, "image ") })
		if len(rest) > 0 {
			u.Say("note: pod %s/%s: not done: %s", p.Namespace, p.Name, strings.Join(rest, ", "))
		}
	}
	var last sandbox.Pod
	said := ""
	err = runtime.Watch(ctx, p.Namespace, p.Name, func(d *sandbox.Detail) (bool, error) {
		if d == nil {
			return false, errors.New("it is gone")
		}
		last = d.Pod
		if why := strings.TrimPrefix(last.Reason+": "+last.Message, ": "); last.State == "Pending" && last.Message != "" &&
			why != said {
			said = why
			u.Say("pod %s/%s waits: %s", p.Namespace, p.Name, why)
		}
		return last.State != "Pending", startError(last)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = model.Faultf(model.CodeTryAgain, "", "does not run after %v: %s: %s", startLimit, last.Reason, last.Message)
	}
	return last, err
}

// startError is about commands that do not exist: waiting will not help.
func startError(p sandbox.Pod) error {
	for _, c := range p.Containers {
		if c.State == "exited" && c.Reason == "StartError" {
			return model.Faultf(
				model.CodeInvalidConf, "correct the manifest; the machine's own programs are what containers have",
				"container %s: %s", c.Name, c.Message)
		}
	}
	return nil
}

// publish writes what the runtime says of a pod into the store, as a kubelet does.
func publish(ctx context.Context, s *dir.Store, n Node, p sandbox.Pod) error {
	host := n.addrsOn(0)
	status := store.PodStatus{Phase: p.State, IPs: podIPs(p), HostIP: host[0]}
	if p.HostNetwork {
		status.IPs = host
	}
	return s.SetPodStatus(ctx, p.Namespace, p.Name, status)
}

func podIPs(p sandbox.Pod) []netip.Addr {
	out := []netip.Addr{}
	for _, text := range p.IPs {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// find is the node of that name.
func (l Layout) find(name string) Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return Node{Name: name, Addrs: [][]netip.Prefix{nil}}
}

type podKey struct{ namespace, name string }

// sandboxes asks every node's runtime what it runs. A node that does not answer is an error beside the others' answers.
func (d Dir) sandboxes(ctx context.Context, l Layout) (map[podKey]sandbox.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	answers := make([][]sandbox.Pod, len(l.Nodes))
	problems := make([]error, len(l.Nodes))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, n := range l.Nodes {
		group.Go(func() error {
			var err error
			if answers[i], err = d.Sandboxes(n.Name).List(ctx); err != nil {
				problems[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	all := map[podKey]sandbox.Pod{}
	for _, list := range answers {
		for _, p := range list {
			all[podKey{p.Namespace, p.Name}] = p
		}
	}
	return all, errors.Join(problems...)
}
