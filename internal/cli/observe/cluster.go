// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// labels are those of the cluster's pods.
type labels struct {
	objects store.Objects
	pods    map[string]map[string]string
	read    time.Time
	err     error
}

// labelsPause is how long labels of a pod are not read again that are not known.
const labelsPause = 5 * time.Second

// readLabels reads the labels of all pods.
func readLabels(ctx context.Context, c agents.Cluster) (*labels, error) {
	if c.Objects == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "name a lab with --dir, or a cluster with --kubeconfig",
			"labels of pods are not known to an agent")
	}
	l := &labels{objects: c.Objects}
	l.reread(ctx)
	return l, l.err
}

func (l *labels) reread(ctx context.Context) {
	l.read, l.pods = time.Now(), map[string]map[string]string{}
	err := store.Each(ctx, l.objects, store.Pods(), func(o store.Object) {
		if p, err := o.Pod(); err == nil {
			l.pods[p.Namespace+"/"+p.Name] = p.Labels
		}
	})
	if err != nil {
		l.err = fmt.Errorf("labels of pods: %w", err)
	}
}

// of returns the labels of a pod.
func (l *labels) of(ctx context.Context) flow.Labels {
	return func(pod string) map[string]string {
		known, ok := l.pods[pod]
		if !ok && time.Since(l.read) > labelsPause { // it may be new
			l.reread(ctx)
			known, ok = l.pods[pod]
		}
		if ok && known == nil {
			return map[string]string{}
		}
		return known
	}
}

// addServices adds the addresses of Kubernetes' Services and of nodes, also of those whose agents do not answer.
func addServices(ctx context.Context, c agents.Cluster, d *flow.Directory) error {
	if c.Objects == nil || c.Dir != "" { // a lab has no Services, and all of its agents are known
		return nil
	}
	nodes, err := c.Objects.List(ctx, store.Nodes())
	if err != nil {
		return fmt.Errorf("names of nodes: %w", err)
	}
	for _, o := range nodes {
		if n, err := o.Node(); err == nil {
			d.AddNode(n.Name, n.Addrs...)
		}
	}
	services, err := c.Objects.List(ctx, store.Services())
	if err != nil {
		return fmt.Errorf("names of Services: %w", err)
	}
	for _, o := range services {
		var s struct {
			Spec struct {
				ClusterIPs, ExternalIPs []string
			}
			Status struct {
				LoadBalancer struct {
					Ingress []struct{ IP string }
				}
			}
		}
		if err := json.Unmarshal(o.Raw, &s); err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		all := append(s.Spec.ClusterIPs, s.Spec.ExternalIPs...)
		for _, i := range s.Status.LoadBalancer.Ingress {
			all = append(all, i.IP)
		}
		for _, text := range all {
			if a, err := netip.ParseAddr(text); err == nil { // not "None"
				d.AddService(o.Key.Namespace+"/"+o.Key.Name, a)
			}
		}
	}
	return nil
}
