// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/model"
)

// pods are the cluster's pods.
type pods struct {
	objects store.Objects
	all     map[string]pod
	read    time.Time
	err     error
}

// pod is a pod with what it belongs to, namespace/name.
type pod struct {
	labels   map[string]string
	workload string
}

// podsPause is how long pods are not read again because of one that is not known.
const podsPause = 5 * time.Second

// readPods reads all pods.
func readPods(ctx context.Context, c agents.Cluster) (*pods, error) {
	if c.Objects == nil {
		return nil, model.Errorf(model.CodeInvalidConf, "name a lab with --dir, or a cluster with --kubeconfig",
			"workloads of pods are not known to an agent")
	}
	p := &pods{objects: c.Objects}
	p.reread(ctx)
	return p, p.err
}

// known reports whether pods can be read; it reads them when it is called first.
func (p *pods) known(ctx context.Context) bool {
	if p.all == nil && p.objects != nil {
		p.reread(ctx)
	}
	return p.all != nil && p.err == nil
}

// labelSets are the labels of all pods; none if they cannot be read.
func (p *pods) labelSets(ctx context.Context) (out []map[string]string) {
	if !p.known(ctx) {
		return nil
	}
	for _, known := range p.all {
		out = append(out, known.labels)
	}
	return out
}

func (p *pods) reread(ctx context.Context) {
	p.read, p.all, p.err = time.Now(), map[string]pod{}, nil
	err := store.Each(ctx, p.objects, store.Pods(), func(o store.Object) {
		if m, err := o.Pod(); err == nil {
			p.all[m.Namespace+"/"+m.Name] = pod{m.Labels, workload(o, m)}
		}
	})
	if err != nil {
		p.err = fmt.Errorf("labels and workloads of pods: %w", err)
	}
}

// find returns a pod.
func (p *pods) find(ctx context.Context, name string) (pod, bool) {
	known, ok := p.all[name]
	if !ok && p.objects != nil && time.Since(p.read) > podsPause { // it may be new
		p.reread(ctx)
		known, ok = p.all[name]
	}
	return known, ok
}

// labels returns the labels of a pod.
func (p *pods) labels(ctx context.Context) flow.Labels {
	return func(name string) map[string]string {
		known, ok := p.find(ctx, name)
		if ok && known.labels == nil {
			return map[string]string{}
		}
		return known.labels
	}
}

// workloads returns the workload of a pod.
func (p *pods) workloads(ctx context.Context) flow.Workloads {
	return func(name string) string {
		known, _ := p.find(ctx, name)
		return known.workload
	}
}

// names are those of all workloads.
func (p *pods) names() []string {
	all := map[string]bool{}
	for _, known := range p.all {
		if known.workload != "" {
			all[known.workload] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// labOwner is the annotation of a lab's pod with its owner, KIND/NAME, as internal/lab/replicas writes it.
const labOwner = "lab.weft.dev/owner"

// cronJob returns the CronJob of a Job, whose name ends with the time in minutes, or the Job.
func cronJob(name string) string {
	const digits = 8 // until the year 2160
	job := strings.TrimRight(name, "0123456789")
	if len(name)-len(job) < digits || len(job) < 2 || !strings.HasSuffix(job, "-") {
		return name
	}
	return strings.TrimSuffix(job, "-")
}

// workload returns what a pod belongs to: its controller, or of a ReplicaSet the Deployment, of a Job the CronJob.
func workload(o store.Object, p model.Pod) string {
	var meta struct {
		Metadata struct {
			OwnerReferences []struct {
				Kind, Name string
				Controller bool
			}
		}
	}
	if err := json.Unmarshal(o.Raw, &meta); err != nil { // it has been decoded before
		return ""
	}
	if _, name, ok := strings.Cut(p.Annotations[labOwner], "/"); ok {
		return p.Namespace + "/" + name
	}
	for _, owner := range meta.Metadata.OwnerReferences {
		name := owner.Name
		switch hash := p.Labels["pod-template-hash"]; {
		case !owner.Controller:
			continue
		case owner.Kind == "ReplicaSet" && hash != "":
			name = strings.TrimSuffix(name, "-"+hash)
		case owner.Kind == "Job":
			name = cronJob(name)
		}
		return p.Namespace + "/" + name
	}
	return ""
}

// addPools adds the pools of the cluster's network. Who may not list them sees no names of pools.
func addPools(ctx context.Context, objects store.Objects, d *flow.Directory) error {
	err := store.Each(ctx, objects, store.AddressPools(), func(o store.Object) {
		p, err := o.AddressPool()
		if err != nil || p.AssignmentMode == "" { // of further networks
			return
		}
		for _, r := range p.Regions {
			d.AddPool(p.Name, r.CIDR)
		}
	})
	if err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrForbidden) {
		return nil
	}
	return fmt.Errorf("names of pools: %w", err)
}

// addNames adds the pools of the cluster's network, and the addresses of Kubernetes' Services and of nodes, also of those
// whose agents do not answer.
func addNames(ctx context.Context, c agents.Cluster, d *flow.Directory) error {
	if c.Objects == nil {
		return nil
	}
	return errors.Join(addPools(ctx, c.Objects, d), addServices(ctx, c, d))
}

func addServices(ctx context.Context, c agents.Cluster, d *flow.Directory) error {
	if c.Dir != "" { // a lab has no Services, and all of its agents are known
		return nil
	}
	nodes := c.Nodes
	if nodes == nil {
		var err error
		if nodes, err = c.Objects.List(ctx, store.Nodes()); err != nil {
			return fmt.Errorf("names of nodes: %w", err)
		}
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
