// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/store"
	"github.com/weft-net/weft/internal/store/dir"
)

// sandbox is a pod as its node's runtime tells of it (`weft sandbox list -o json`).
type sandbox struct {
	ID        string       `json:"id"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	State     string       `json:"state"`
	Ready     bool         `json:"ready"`
	Netns     string       `json:"netns"`
	IPs       []netip.Addr `json:"ips"`
}

// weft runs another verb of this program inside a node's namespace and returns what it prints. Like all processes of a
// lab it carries the mark, so that it cannot outlive the lab.
func (v View) weft(ctx context.Context, node string, args ...string) ([]byte, error) {
	ns, err := netns.Open(v.Dir.NS(node))
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	cmd := exec.CommandContext(ctx, v.Self, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &stdout, &stderr, v.Dir.marked(v.Env)
	if err := ns.Do(cmd.Start); err != nil {
		return nil, err
	}
	if err = cmd.Wait(); err == nil {
		return stdout.Bytes(), nil
	}
	msg, hint, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(stderr.String()), "weft: "), "\nhint: ")
	if msg == "" || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return nil, &model.Fault{Code: model.CodeInternal, Msg: msg, Hint: hint, Err: err}
}

// marked is an environment with the lab's mark.
func (d Dir) marked(env []string) []string {
	return append([]string{markVar + "=" + string(d)}, env...)
}

// runPods runs each pod in a sandbox of its node, and writes its addresses into the store.
func (u Up) runPods(ctx context.Context, pods []model.Pod) error {
	s, err := dir.Open(u.Dir.Store())
	if err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, p := range pods {
		group.Go(func() error {
			if err := u.runPod(gctx, s, p); err != nil {
				return fmt.Errorf("pod %s/%s on %s: %w", p.Namespace, p.Name, p.Node, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return u.publish(ctx, s, pods)
}

func (u Up) runPod(ctx context.Context, s *dir.Store, p model.Pod) error {
	o, err := s.Get(store.PodKey(p.Namespace, p.Name))
	if err != nil {
		return err
	}
	manifest := u.Dir.Node(p.Node, p.Namespace+"_"+p.Name+".pod.json")
	if err := os.WriteFile(manifest, o.Raw, 0o644); err != nil {
		return u.Dir.unwritable(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, err = u.view().weft(ctx, p.Node, append(append([]string{"sandbox", "run"}, u.Dir.SandboxFlags(p.Node)...), manifest)...)
	return err
}

// publish writes what the runtimes say of the pods into the store, as a kubelet does.
func (u Up) publish(ctx context.Context, s *dir.Store, pods []model.Pod) error {
	l, err := u.Dir.Open()
	if err != nil {
		return err
	}
	live, err := u.view().sandboxes(ctx, l.Layout)
	if err != nil {
		return err
	}
	for _, p := range pods {
		box, ok := live[podKey{p.Namespace, p.Name}]
		if !ok {
			return fmt.Errorf("pod %s/%s: its node %s does not know it", p.Namespace, p.Name, p.Node)
		}
		host := l.Layout.node1(p.Node).addrsOn(0)
		status := store.PodStatus{Phase: "Running", IPs: box.IPs, HostIP: host[0]}
		if p.HostNetwork {
			status.IPs = host
		}
		if err := s.SetPodStatus(ctx, p.Namespace, p.Name, status); err != nil {
			return err
		}
	}
	return nil
}

// node1 is the node of that name.
func (l Layout) node1(name string) Node {
	for _, n := range l.Nodes {
		if n.Name == name {
			return n
		}
	}
	return Node{Name: name}
}

type podKey struct{ namespace, name string }

// sandboxes asks every node's runtime what it runs. A node that does not answer is an error beside the others' answers.
func (v View) sandboxes(ctx context.Context, l Layout) (map[podKey]sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	answers := make([][]sandbox, len(l.Nodes))
	problems := make([]error, len(l.Nodes))
	var group errgroup.Group
	group.SetLimit(8)
	for i, n := range l.Nodes {
		group.Go(func() error {
			if !v.Dir.runs(n.Name, roleSandbox) {
				problems[i] = fmt.Errorf("node %s: the sandbox runtime is dead", n.Name)
				return nil
			}
			out, err := v.weft(ctx, n.Name, append([]string{"sandbox", "list", "-o", "json"}, v.Dir.SandboxFlags(n.Name)...)...)
			if err == nil {
				err = json.Unmarshal(out, &answers[i])
			}
			if err != nil {
				problems[i] = fmt.Errorf("node %s: sandboxes: %w", n.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	all := map[podKey]sandbox{}
	for _, list := range answers {
		for _, s := range list {
			all[podKey{s.Namespace, s.Name}] = s
		}
	}
	return all, errors.Join(problems...)
}
