// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// fixture is what the tests use: the namespaces and pods of a run.
type fixture struct {
	cluster   Cluster
	namespace string
	nodes     []string // one or two
	mu        sync.Mutex
	pods      map[string]model.Pod // guarded by mu
}

func newFixture(c Cluster, namespace string) *fixture {
	return &fixture{cluster: c, namespace: namespace, pods: map[string]model.Pod{}}
}

// chooseNodes takes the first two nodes whose agents answer.
func (f *fixture) chooseNodes(ctx context.Context) error {
	all, err := f.cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	if len(all) == 0 {
		return model.Errorf(model.CodeNotAvailable, "see weft status", "no agent of the cluster answers")
	}
	f.nodes = all[:min(2, len(all))]
	return nil
}

// at returns a node by the letter that ends its pods' names.
func (f *fixture) at(letter string) string {
	if letter == "b" {
		return f.nodes[len(f.nodes)-1]
	}
	return f.nodes[0]
}

// setUp creates namespaces and pods, and waits until the servers answer in their own pods.
func (f *fixture) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	policies := f.namespace + policySuffix
	for _, m := range []map[string]any{
		namespaceManifest(f.namespace, map[string]string{"team": "other"}), namespaceManifest(policies, map[string]string{"team": "own"}),
	} {
		if err := f.create(ctx, store.Namespaces(), m); err != nil {
			return err
		}
	}
	var pods []podSpec
	for _, letter := range []string{"a", "b"}[:len(f.nodes)] {
		node := f.at(letter)
		pods = append(
			pods,
			podSpec{
				namespace: f.namespace,
				name:      "client-" + letter,
				node:      node,
				labels:    map[string]string{roleLabel: "client"},
			},
			podSpec{
				namespace: f.namespace,
				name:      "server-" + letter,
				node:      node,
				labels:    map[string]string{roleLabel: "server"},
			},
			podSpec{namespace: f.namespace, name: "host-" + letter, node: node, hostNetwork: true},
		)
	}
	pods = append(pods,
		podSpec{namespace: f.namespace, name: "hostport-b", node: f.at("b"), hostPort: true},
		podSpec{namespace: policies, name: "client", node: f.at("a"), labels: map[string]string{roleLabel: "client"}},
		podSpec{namespace: policies, name: "visitor", node: f.at("b"), labels: map[string]string{roleLabel: "visitor"}},
		podSpec{namespace: policies, name: "server", node: f.at("b"), labels: map[string]string{roleLabel: "server"}})
	return f.startPods(ctx, pods)
}

// startPods creates pods, and waits until their servers answer.
func (f *fixture) startPods(ctx context.Context, pods []podSpec) error {
	for _, p := range pods {
		if err := f.create(ctx, store.Pods(), f.podManifest(p)); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range pods {
		group.Go(func() error { return f.await(ctx, p) })
	}
	return group.Wait()
}

// await waits until the server of a pod answers.
func (f *fixture) await(ctx context.Context, p podSpec) error {
	last := errors.New("it was not started")
	for {
		pod, err := f.pod(ctx, p)
		if err == nil {
			_, err = f.cluster.Exec(ctx, p.namespace, p.name, "connectivity-test", "probe", "[]")
		}
		if err == nil {
			f.mu.Lock()
			f.pods[p.namespace+"/"+p.name] = pod
			f.mu.Unlock()
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return model.Errorf(model.CodeTryAgain, "see the pod's events", "pod %s/%s on %s: %w", p.namespace,
				p.name, p.node, last)
		case <-time.After(pollInterval):
		}
	}
}

// pod returns a pod that runs and has addresses.
func (f *fixture) pod(ctx context.Context, p podSpec) (model.Pod, error) {
	o, err := f.cluster.Objects().Get(ctx, store.Pods(), store.PodKey(p.namespace, p.name))
	if err != nil {
		return model.Pod{}, err
	}
	pod, err := o.Pod()
	if err == nil && (pod.Phase != "Running" || len(pod.IPs) == 0) {
		err = fmt.Errorf("its phase is %q", pod.Phase)
	}
	return pod, err
}

// addrs returns the addresses of a pod of the test, as namespace/name or the name in the run's namespace.
func (f *fixture) addrs(name string) []netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[f.full(name)].IPs
}

// full returns namespace/name.
func (f *fixture) full(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return f.namespace + "/" + name
}

func (f *fixture) create(ctx context.Context, kind store.Kind, fields map[string]any) error {
	o, err := object(fields)
	if err == nil {
		_, err = f.cluster.Objects().Create(ctx, kind, o)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.Key, err)
	}
	return nil
}

// remove deletes an object.
func (f *fixture) remove(ctx context.Context, kind store.Kind, namespace, name string) error {
	return remove(ctx, f.cluster.Objects(), kind, kind.Key(namespace, name))
}

func remove(ctx context.Context, objects store.Objects, kind store.Kind, key store.Key) error {
	o, err := objects.Get(ctx, kind, key)
	if err == nil {
		err = objects.Delete(ctx, kind, key, o.Version)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}
