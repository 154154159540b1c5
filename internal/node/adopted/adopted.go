// SPDX-License-Identifier: Apache-2.0

// Package adopted enforces policy on the interfaces of pods that Calico attached before weft took over, and whose
// addresses are reserved for them. The interfaces stay as they are until their pods end.
package adopted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
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
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
)

const (
	// checkPeriod is how often it is looked whether adopted interfaces are still there.
	checkPeriod = 5 * time.Second
	// retryFirst and retryLongest are the first and the longest pause before it is asked again whose an interface is.
	retryFirst, retryLongest = time.Second, 5 * time.Minute
)

// networkName stands for the network that the interfaces were made by.
const networkName = "calico"

// Records are the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Policy enforces policies on interfaces.
type Policy interface {
	Admit(ctx context.Context, all ...model.WorkloadEndpoint) error
	Attached(keys ...model.AttachmentKey)
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Config is the Endpoints'.
type Config struct {
	Node     string
	StateDir string
	Boot     string
	Records  Records
	Objects  store.Objects
	Cluster  func() *model.Cluster
	Policy   Policy
	Log      *slog.Logger
	After    func(time.Duration) <-chan time.Time
}

// Endpoints are the interfaces that Calico made for pods of this node, whose addresses are reserved for them: policies
// hold for them as for weft's own. A node without any asks for nothing.
type Endpoints struct {
	cfg  Config
	file string

	mu sync.Mutex
	// all are those that policies hold for, by the names of the node's ends.
	all map[string]model.WorkloadEndpoint
}

// saved is what the file remembers: an agent that starts goes on with them before it has heard of the cluster.
type saved struct {
	Boot       string           `json:"boot"`
	Interfaces []savedInterface `json:"interfaces"`
}

// savedInterface is what the file remembers of an interface. Its fields keep the names that earlier agents wrote.
type savedInterface struct {
	Key      model.AttachmentKey
	Pod      model.PodRef
	IfName   string
	HostLink string
	Addrs    []netip.Addr
}

// endpoint is the interface: Calico routes them all.
func (i savedInterface) endpoint() model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		Attachment: i.Key, Pod: i.Pod, IfName: i.IfName, HostLink: i.HostLink, HostEnd: model.HostEndRouted, Addrs: i.Addrs,
	}
}

// Open reads what was remembered in this boot.
func Open(cfg Config) *Endpoints {
	e := &Endpoints{cfg: cfg, file: path(cfg.StateDir), all: map[string]model.WorkloadEndpoint{}}
	b, err := os.ReadFile(e.file)
	var f saved
	if err == nil && json.Unmarshal(b, &f) == nil && f.Boot == cfg.Boot {
		for _, i := range f.Interfaces {
			e.all[i.HostLink] = i.endpoint()
		}
	}
	return e
}

// All are the interfaces; the nil Endpoints has none.
func (e *Endpoints) All() []model.WorkloadEndpoint {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.all), func(x, y model.WorkloadEndpoint) int {
		return strings.Compare(x.HostLink, y.HostLink)
	})
}

// Run enforces policy on them until ctx ends, or none is left.
func (e *Endpoints) Run(ctx context.Context) error {
	trouble, pause := "", retryFirst
	for {
		err := e.follow(ctx)
		wait := checkPeriod
		switch {
		case err != nil:
			wait, pause = pause, min(2*pause, retryLongest)
		case len(e.All()) == 0:
			return nil
		default:
			trouble, pause = "", retryFirst
		}
		// What was begun just now may be known a moment later.
		if err != nil && pause > 2*retryFirst && err.Error() != trouble && ctx.Err() == nil {
			trouble = err.Error()
			e.cfg.Log.Warn("policies do not hold for pods that Calico has attached", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(wait):
		}
	}
}

// follow compares those that there are with those that policies hold for.
func (e *Endpoints) follow(ctx context.Context) error {
	there, err := e.present()
	if err != nil {
		return err
	}
	var gone []model.WorkloadEndpoint
	for _, g := range e.All() {
		if !slices.Contains(there, g.HostLink) {
			gone = append(gone, g)
		}
	}
	there = slices.DeleteFunc(there, func(name string) bool {
		_, known := e.all[name] // Run alone changes it
		return known
	})
	var news []model.WorkloadEndpoint
	if len(there) > 0 {
		if news, err = e.find(ctx, there); err != nil {
			return err
		}
	}
	errs := []error{e.take(ctx, news, gone)}
	if len(news) < len(there) {
		errs = append(
			errs,
			fmt.Errorf("nobody says whose %d interfaces are, %s … (`weft ipam import --from calico` does)",
				len(there)-len(news), there[0]),
		)
	}
	return errors.Join(errs...)
}

// present are the node's ends of pods' interfaces that are not weft's.
func (e *Endpoints) present() ([]string, error) {
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
	records, err := e.cfg.Records.List()
	for _, r := range records {
		names = slices.DeleteFunc(names, func(name string) bool { return name == r.HostLink() })
	}
	return names, err
}

// find tells whose interfaces are, by what is reserved for pods that Calico has attached.
func (e *Endpoints) find(ctx context.Context, names []string) ([]model.WorkloadEndpoint, error) {
	pools, err := e.cfg.Objects.List(ctx, store.AddressPools())
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	found := map[string]model.WorkloadEndpoint{}
	for _, o := range pools {
		p, err := o.AddressPool()
		if err != nil {
			continue // those who use it say so
		}
		for _, r := range p.Reserved {
			if g, ok := e.owner(r); ok && slices.Contains(names, g.HostLink) {
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

// owner is the interface that an address is reserved for; false when it is no pod's that Calico has attached.
func (e *Endpoints) owner(r model.ReservedAddress) (model.WorkloadEndpoint, bool) {
	if r.By != model.ByCalico {
		return model.WorkloadEndpoint{}, false
	}
	var pod model.PodRef
	if r.ContainerID != "" {
		pod.Namespace, pod.Name, _ = strings.Cut(r.For, "/")
	} else if pod = e.holder(r.Addr); pod.Name == "" { // a machine's, whichever pod it is in
		return model.WorkloadEndpoint{}, false
	}
	ifName := cmp.Or(r.IfName, "eth0")
	link := plugin.CalicoHostName(model.Request{
		ContainerID: r.ContainerID, IfName: ifName, Origin: &model.Origin{Pod: pod},
	})
	return model.WorkloadEndpoint{
		Attachment: model.AttachmentKey{Network: networkName, ContainerID: cmp.Or(r.ContainerID, link), IfName: ifName},
		Pod:        pod, IfName: ifName, HostLink: link, HostEnd: model.HostEndRouted,
	}, true
}

// holder is the pod of this node that says that it has an address.
func (e *Endpoints) holder(a netip.Addr) model.PodRef {
	c := e.cfg.Cluster()
	if c == nil {
		return model.PodRef{}
	}
	for _, p := range c.Pods {
		if p.Node == e.cfg.Node && !p.HostNetwork && slices.Contains(p.IPs, a) {
			return model.PodRef{Namespace: p.Namespace, Name: p.Name}
		}
	}
	return model.PodRef{}
}

// take has the enforcer look after the new ones, and give up those that are gone.
func (e *Endpoints) take(ctx context.Context, news, gone []model.WorkloadEndpoint) error {
	if len(news)+len(gone) == 0 {
		return nil
	}
	p := e.cfg.Policy
	var errs []error
	for _, g := range gone {
		errs = append(errs, p.Release(ctx, g.Attachment))
		e.note(g, false)
	}
	for _, g := range news {
		if err := p.Admit(ctx, g); err != nil {
			errs = append(errs, err)
			continue
		}
		p.Attached(g.Attachment)
		e.note(g, true)
		e.cfg.Log.Info("policies hold for a pod that Calico has attached", "pod", g.Pod.String(), "interface", g.HostLink)
	}
	return errors.Join(append(errs, e.save())...)
}

func (e *Endpoints) note(g model.WorkloadEndpoint, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is {
		e.all[g.HostLink] = g
	} else {
		delete(e.all, g.HostLink)
	}
}

// save remembers them.
func (e *Endpoints) save() error {
	f := saved{Boot: e.cfg.Boot}
	for _, one := range e.All() {
		f.Interfaces = append(f.Interfaces, savedInterface{
			Key: one.Attachment, Pod: one.Pod, IfName: one.IfName, HostLink: one.HostLink, Addrs: one.Addrs,
		})
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return atomicfile.Write(e.file, b, 0o600, atomicfile.CrashSafe)
}

// Names are the node's ends of pods that Calico has attached and that policies hold for, by what the agent of a state
// directory has written down.
func Names(stateDir string) ([]string, error) {
	b, err := os.ReadFile(path(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var f saved
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

func path(stateDir string) string { return filepath.Join(stateDir, "inherited.json") }
