// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const (
	// inheritedPeriod is how often it is looked whether inherited interfaces are still there.
	inheritedPeriod = 5 * time.Second
	// inheritedAgain and inheritedLongest are the first and the longest pause before it is asked again whose an interface is.
	inheritedAgain, inheritedLongest = time.Second, 5 * time.Minute
)

// inheritedNetwork stands for the network that the interfaces were made by.
const inheritedNetwork = "calico"

// inherited are the interfaces that Calico has made for pods of this node, whose addresses are reserved for them: they go on
// as they are until their pods end, and policies hold for them as for weft's own. Nothing is done to the interfaces. A node
// without any asks nobody.
type inherited struct {
	agent *agent
	boot  string
	file  string

	mu sync.Mutex
	// all are those that policies hold for, by the names of the node's ends.
	all map[string]attach.Guarded
}

// inheritedFile is what is remembered: an agent that starts goes on with them before it has heard of the cluster.
type inheritedFile struct {
	Boot       string           `json:"boot"`
	Interfaces []attach.Guarded `json:"interfaces"`
}

// openInherited reads what was remembered in this boot.
func (a *agent) openInherited(boot string) *inherited {
	i := &inherited{agent: a, boot: boot, file: inheritedPath(a.cfg.StateDir), all: map[string]attach.Guarded{}}
	b, err := os.ReadFile(i.file)
	var f inheritedFile
	if err == nil && json.Unmarshal(b, &f) == nil && f.Boot == boot {
		for _, g := range f.Interfaces {
			i.all[g.HostLink] = g
		}
	}
	return i
}

// guarded are the interfaces; nil has none.
func (i *inherited) guarded() []attach.Guarded {
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.SortedFunc(maps.Values(i.all), func(x, y attach.Guarded) int { return strings.Compare(x.HostLink, y.HostLink) })
}

// run has policies hold for them until ctx ends, or none is left.
func (i *inherited) run(ctx context.Context) error {
	trouble, pause := "", inheritedAgain
	for {
		err := i.follow(ctx)
		wait := inheritedPeriod
		switch {
		case err != nil:
			wait, pause = pause, min(2*pause, inheritedLongest)
		case len(i.guarded()) == 0:
			return nil
		default:
			trouble, pause = "", inheritedAgain
		}
		// What was begun just now may be known a moment later.
		if err != nil && pause > 2*inheritedAgain && err.Error() != trouble && ctx.Err() == nil {
			trouble = err.Error()
			i.agent.cfg.Log.Warn("policies do not hold for pods that Calico has attached", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-i.agent.cfg.After(wait):
		}
	}
}

// follow compares those that there are with those that policies hold for.
func (i *inherited) follow(ctx context.Context) error {
	there, err := i.present()
	if err != nil {
		return err
	}
	var gone []attach.Guarded
	for _, g := range i.guarded() {
		if !slices.Contains(there, g.HostLink) {
			gone = append(gone, g)
		}
	}
	there = slices.DeleteFunc(there, func(name string) bool {
		_, known := i.all[name] // run alone changes it
		return known
	})
	var news []attach.Guarded
	if len(there) > 0 {
		if news, err = i.find(ctx, there); err != nil {
			return err
		}
	}
	errs := []error{i.take(ctx, news, gone)}
	if len(news) < len(there) {
		errs = append(errs, fmt.Errorf("nobody says whose %d interfaces are, %s … (`weft ipam import --from calico` does)", len(there)-len(news), there[0]))
	}
	return errors.Join(errs...)
}

// present are the node's ends of pods' interfaces that are not weft's.
func (i *inherited) present() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("interfaces of the node: %w", err)
	}
	var names []string
	for _, l := range all {
		if strings.HasPrefix(l.Name, plugin.CalicoPrefix) {
			names = append(names, l.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	records, err := i.agent.ledger.List()
	for _, r := range records {
		names = slices.DeleteFunc(names, func(name string) bool { return name == r.HostLink() })
	}
	return names, err
}

// find tells whose interfaces are, by what is reserved for pods that Calico has attached.
func (i *inherited) find(ctx context.Context, names []string) ([]attach.Guarded, error) {
	pools, err := i.agent.objects().List(ctx, store.AddressPools())
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	found := map[string]attach.Guarded{}
	for _, o := range pools {
		p, err := o.AddressPool()
		if err != nil {
			continue // those who use it say so
		}
		for _, r := range p.Reserved {
			if g, ok := i.inherit(r); ok && slices.Contains(names, g.HostLink) {
				if had, ok := found[g.HostLink]; ok {
					g = had
				}
				g.Addrs = append(g.Addrs, r.Addr)
				found[g.HostLink] = g
			}
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

// inherit is the interface that an address is reserved for; false when it is no pod's that Calico has attached.
func (i *inherited) inherit(r model.ReservedAddress) (attach.Guarded, bool) {
	if r.By != blocks.ByCalico {
		return attach.Guarded{}, false
	}
	var pod model.PodRef
	if r.ContainerID != "" {
		pod.Namespace, pod.Name, _ = strings.Cut(r.For, "/")
	} else if pod = i.holder(r.Addr); pod.Name == "" { // a machine's, whichever pod it is in
		return attach.Guarded{}, false
	}
	ifName := cmp.Or(r.IfName, "eth0")
	link := plugin.CalicoHostName(model.Request{ContainerID: r.ContainerID, IfName: ifName, Origin: &model.Origin{Pod: pod}})
	return attach.Guarded{
		Key: model.AttachmentKey{Network: inheritedNetwork, ContainerID: cmp.Or(r.ContainerID, link), IfName: ifName},
		Pod: pod, IfName: ifName, HostLink: link,
	}, true
}

// holder is the pod of this node that says that it has an address.
func (i *inherited) holder(a netip.Addr) model.PodRef {
	c := i.agent.facts.Cluster()
	if c == nil {
		return model.PodRef{}
	}
	for _, p := range c.Pods {
		if p.Node == i.agent.cfg.Node && !p.HostNetwork && slices.Contains(p.IPs, a) {
			return model.PodRef{Namespace: p.Namespace, Name: p.Name}
		}
	}
	return model.PodRef{}
}

// take has the enforcer look after the new ones, and give up those that are gone.
func (i *inherited) take(ctx context.Context, news, gone []attach.Guarded) error {
	if len(news)+len(gone) == 0 {
		return nil
	}
	p := i.agent.policy
	var errs []error
	for _, g := range gone {
		errs = append(errs, p.Release(ctx, g.Key))
		i.note(g, false)
	}
	for _, g := range news {
		if err := p.Admit(ctx, g); err != nil {
			errs = append(errs, err)
			continue
		}
		p.Attached(g.Key)
		i.note(g, true)
		i.agent.cfg.Log.Info("policies hold for a pod that Calico has attached", "pod", g.Pod.String(), "interface", g.HostLink)
	}
	return errors.Join(append(errs, i.save())...)
}

func (i *inherited) note(g attach.Guarded, is bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if is {
		i.all[g.HostLink] = g
	} else {
		delete(i.all, g.HostLink)
	}
}

// save remembers them.
func (i *inherited) save() error {
	b, err := json.Marshal(inheritedFile{Boot: i.boot, Interfaces: i.guarded()})
	if err != nil {
		return err
	}
	return atomicfile.Write(i.file, b, 0o600, atomicfile.CrashSafe)
}

// Inherited are the node's ends of pods that Calico has attached and that policies hold for, by what the agent of a state
// directory has written down.
func Inherited(stateDir string) ([]string, error) {
	b, err := os.ReadFile(inheritedPath(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f inheritedFile
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return nil, fmt.Errorf("pods that Calico has attached: %w", err)
	}
	var names []string
	for _, g := range f.Interfaces {
		names = append(names, g.HostLink)
	}
	return names, nil
}

func inheritedPath(stateDir string) string { return filepath.Join(stateDir, "inherited.json") }
