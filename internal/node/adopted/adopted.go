// SPDX-License-Identifier: Apache-2.0

// Package adopted enforces policy on the interfaces of pods that Calico attached before weft took over, and whose
// addresses are reserved for them. The interfaces are not changed until their pods end.
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
	"github.com/weft-net/weft/internal/node/unrecorded"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

const (
	// checkPeriod is how often the agent checks whether adopted interfaces still exist.
	checkPeriod = 5 * time.Second
	// retryFirst and retryLongest are the first and the longest pause before the owners are looked up again.
	retryFirst, retryLongest = time.Second, 5 * time.Minute
)

// FileName is the name of the file in the state directory, and FileVersion its format.
const (
	FileName    = "inherited.json"
	FileVersion = 1
)

// networkName is the network name of adopted interfaces.
const networkName = "calico"

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Policy enforces policies on interfaces.
type Policy interface {
	Admit(ctx context.Context, all ...model.WorkloadEndpoint) error
	Attached(keys ...model.AttachmentKey)
	Release(ctx context.Context, key model.AttachmentKey) error
}

// Config configures Endpoints.
type Config struct {
	Node     string
	StateDir string
	Boot     string
	Records  Records
	// Lost are weft's own interfaces without a record.
	Lost []unrecorded.Interface
	// Links lists the node's links, complete or not at all: policies are no longer enforced on one that is missing.
	Links   func(ctx context.Context) ([]state.Link, error)
	Objects store.Objects
	Cluster func() *model.Cluster
	Policy  Policy
	Log     *slog.Logger
	After   func(time.Duration) <-chan time.Time
}

// Endpoints are the interfaces that Calico made for pods of this node, whose addresses are reserved for them. Policies
// apply to them as to weft's own. A node without such interfaces reads nothing from the datastore.
type Endpoints struct {
	cfg  Config
	file string

	mu sync.Mutex
	// all are the adopted endpoints by the host interface of their veth.
	all map[string]model.WorkloadEndpoint
}

// saved is the content of the file: a restarted agent uses it until the cluster's objects are known.
type saved struct {
	Boot       string           `json:"boot"`
	Interfaces []savedInterface `json:"interfaces"`
}

// savedInterface is one interface in the file. Its fields keep the names that earlier agents wrote.
type savedInterface struct {
	Key      model.AttachmentKey
	Pod      model.PodRef
	IfName   string
	HostLink string
	Addrs    []netip.Addr
}

// endpoint returns the endpoint: Calico routes all of them.
func (i savedInterface) endpoint() model.WorkloadEndpoint {
	return model.WorkloadEndpoint{
		Attachment: i.Key, Pod: i.Pod, IfName: i.IfName, HostLink: i.HostLink, HostEnd: model.HostEndRouted, Addrs: i.Addrs,
	}
}

// Open reads the file of this boot.
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

// All returns the endpoints; the nil Endpoints has none.
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

// Run enforces policy on the endpoints until ctx ends, or none is left.
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
		// Data that is still being loaded may be complete soon.
		if err != nil && pause > 2*retryFirst && err.Error() != trouble && ctx.Err() == nil {
			trouble = err.Error()
			e.cfg.Log.Warn("policies are not enforced for pods that Calico attached", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.cfg.After(wait):
		}
	}
}

// follow compares the host interfaces that exist with the endpoints that are enforced.
func (e *Endpoints) follow(ctx context.Context) error {
	there, err := e.present(ctx)
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
		_, known := e.all[name] // only Run changes it
		return known
	})
	var added []model.WorkloadEndpoint
	if len(there) > 0 {
		if added, err = e.find(ctx, there); err != nil {
			return err
		}
	}
	errs := []error{e.update(ctx, added, gone)}
	if len(added) < len(there) {
		errs = append(
			errs,
			fmt.Errorf("no reservation names the owner of %d interfaces, %s … (`weft ipam import --from calico` does)",
				len(there)-len(added), there[0]),
		)
	}
	return errors.Join(errs...)
}

// present returns the host interfaces of pods that are not weft's.
func (e *Endpoints) present(ctx context.Context) ([]string, error) {
	all, err := e.cfg.Links(ctx)
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
	for _, i := range e.cfg.Lost {
		names = slices.DeleteFunc(names, func(name string) bool { return name == i.HostLink })
	}
	records, err := e.cfg.Records.List()
	for _, r := range records {
		names = slices.DeleteFunc(names, func(name string) bool { return name == r.HostLink() })
	}
	return names, err
}

// find returns the endpoints of interfaces, by the addresses that are reserved for pods that Calico attached.
func (e *Endpoints) find(ctx context.Context, names []string) ([]model.WorkloadEndpoint, error) {
	pools, err := e.cfg.Objects.List(ctx, store.AddressPools())
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	found := map[string]model.WorkloadEndpoint{}
	for _, o := range pools {
		p, err := o.AddressPool()
		if err != nil {
			continue // its users report it
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

// owner returns the endpoint that an address is reserved for; false if it is not for a pod that Calico attached.
func (e *Endpoints) owner(r model.ReservedAddress) (model.WorkloadEndpoint, bool) {
	if r.Source != model.ByCalico {
		return model.WorkloadEndpoint{}, false
	}
	var pod model.PodRef
	if r.ContainerID != "" {
		pod.Namespace, pod.Name, _ = strings.Cut(r.Owner, "/")
	} else if pod = e.holder(r.Addr); pod.Name == "" { // reserved for a VM, in any of its pods
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

// holder returns the pod of this node whose status has an address.
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

// update starts enforcement for new endpoints and ends it for those that are gone.
func (e *Endpoints) update(ctx context.Context, added, gone []model.WorkloadEndpoint) error {
	if len(added)+len(gone) == 0 {
		return nil
	}
	p := e.cfg.Policy
	var errs []error
	for _, g := range gone {
		errs = append(errs, p.Release(ctx, g.Attachment))
		e.set(g, false)
	}
	for _, g := range added {
		if err := p.Admit(ctx, g); err != nil {
			errs = append(errs, err)
			continue
		}
		p.Attached(g.Attachment)
		e.set(g, true)
		e.cfg.Log.Info("policies are enforced for a pod that Calico attached", "pod", g.Pod.String(), "interface", g.HostLink)
	}
	return errors.Join(append(errs, e.save())...)
}

func (e *Endpoints) set(g model.WorkloadEndpoint, is bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if is {
		e.all[g.HostLink] = g
	} else {
		delete(e.all, g.HostLink)
	}
}

// save writes the file.
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

// Names returns the host interfaces of pods that Calico attached and for which policies are enforced, read from the
// agent's state directory.
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

func path(stateDir string) string { return filepath.Join(stateDir, FileName) }
