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
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox"
)

const (
	// podTimeout bounds the start and the stop of a pod.
	podTimeout = time.Minute
	// parallel is the number of nodes or pods that are handled in parallel.
	parallel = 8
)

// Sandboxes returns a client of a node's sandbox runtime.
func (d Dir) Sandboxes(node string) *sandbox.Client { return sandbox.NewClient(d.sandboxDir(node)) }

func (d Dir) sandboxDir(node string) string { return d.Node(node, "sandbox") }

// runPods runs each pod on its node and writes its status to the store. If some pods fail, it returns an incompleteError.
// Pods on nodes that have failed are not tried.
func (u Up) runPods(ctx context.Context, l layout.Layout, pods []model.Pod, failedNodes map[string]bool) error {
	s, err := dir.Open(u.Dir.Store())
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	failed := make([]string, len(pods))
	for i, p := range pods {
		if failedNodes[p.Node] {
			failed[i] = fmt.Sprintf("pod %s/%s on %s: its node has failed", p.Namespace, p.Name, p.Node)
			continue
		}
		group.Go(func() error {
			running, err := u.runPod(ctx, s, p)
			if err == nil {
				err = writePodStatus(ctx, s, l.Find(p.Node), running)
			}
			if err != nil && ctx.Err() == nil {
				failed[i] = fmt.Sprintf("pod %s/%s on %s: %v", p.Namespace, p.Name, p.Node, err)
				u.Logf("%s", failed[i])
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	failed = slices.DeleteFunc(failed, func(s string) bool { return s == "" })
	if len(failed) == 0 {
		return nil
	}
	hint := fmt.Sprintf("correct the manifest; see `weft lab status --dir %[1]s` and %[1]s/nodes/NODE/logs", u.Dir)
	return incomplete(hint, "%d of %d pods are not running: %s", len(failed), len(pods), strings.Join(failed, "; "))
}

// errReplaced is the error of a pod in whose place the store has another one by now.
var errReplaced = errors.New("the pod was replaced")

func (u Up) runPod(ctx context.Context, s *dir.Store, p model.Pod) (sandbox.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	o, err := s.Get(store.PodKey(p.Namespace, p.Name))
	if err != nil {
		return sandbox.Pod{}, err
	}
	if now, err := o.Pod(); err != nil || now.UID != p.UID {
		return sandbox.Pod{}, errors.Join(err, errReplaced)
	}
	if err := u.Dir.recordPod(p.Node, p.UID, podKey{p.Namespace, p.Name}); err != nil {
		return sandbox.Pod{}, err
	}
	runtime := u.Dir.Sandboxes(p.Node)
	applied, err := runtime.Apply(ctx, o.Raw, "manifest")
	if err != nil {
		return sandbox.Pod{}, err
	}
	for _, a := range applied.Pods {
		// Images are ignored for all pods, which up reports once.
		rest := slices.DeleteFunc(a.Ignored, func(s string) bool { return strings.HasPrefix(s, "image ") })
		if len(rest) > 0 {
			u.Logf("note: pod %s/%s: ignored: %s", p.Namespace, p.Name, strings.Join(rest, ", "))
		}
	}
	var last sandbox.Pod
	logged := ""
	err = runtime.Watch(ctx, p.Namespace, p.Name, func(d *sandbox.Detail) (bool, error) {
		if d == nil {
			return false, errors.New("the pod was deleted")
		}
		last = d.Pod
		if reason := strings.TrimPrefix(last.Reason+": "+last.Message, ": "); last.State == "Pending" &&
			last.Message != "" && reason != logged {
			logged = reason
			u.Logf("pod %s/%s is waiting: %s", p.Namespace, p.Name, reason)
		}
		return last.State != "Pending", startError(last)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = model.Errorf(model.CodeTryAgain, "", "not running after %v: %s: %s", podTimeout, last.Reason, last.Message)
	}
	return last, err
}

// startError returns the error of a container whose command cannot be started, which is permanent.
func startError(p sandbox.Pod) error {
	for _, c := range p.Containers {
		if c.State == "exited" && c.Reason == "StartError" {
			return model.Errorf(
				model.CodeInvalidConf, "correct the manifest; containers have the host's programs",
				"container %s: %s", c.Name, c.Message)
		}
	}
	return nil
}

// writePodStatus writes a pod's status to the store, as a kubelet does.
func writePodStatus(ctx context.Context, s *dir.Store, n layout.Node, p sandbox.Pod) error {
	host := n.AddrsOn(0)
	status := store.PodStatus{Phase: p.State, IPs: podIPs(p), HostIP: host[0]}
	if p.HostNetwork {
		status.IPs = host
	}
	_, err := s.Modify(ctx, store.PodKey(p.Namespace, p.Name), func(fields map[string]any) error {
		if meta, ok := fields["metadata"].(map[string]any); ok && meta["uid"] != p.UID {
			return errReplaced
		}
		return status.Edit(fields)
	})
	return err
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

type podKey struct{ namespace, name string }

// runningPods lists the pods of all nodes' runtimes. If some runtimes do not respond, it returns the other pods and an
// error.
func (d Dir) runningPods(ctx context.Context, l layout.Layout) (map[podKey]sandbox.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	lists := make([][]sandbox.Pod, len(l.Nodes))
	problems := make([]error, len(l.Nodes))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, n := range l.Nodes {
		group.Go(func() error {
			var err error
			if lists[i], err = d.Sandboxes(n.Name).List(ctx); err != nil {
				problems[i] = fmt.Errorf("node %s: %w", n.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	all := map[podKey]sandbox.Pod{}
	for _, list := range lists {
		for _, p := range list {
			all[podKey{p.Namespace, p.Name}] = p
		}
	}
	return all, errors.Join(problems...)
}
