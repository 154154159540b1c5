// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/model"
)

// pool is a pool of one Docker network.
type pool struct {
	ID string `json:"id"`
	// Subnet is that of --subnet, if any.
	Subnet netip.Prefix `json:"subnet,omitzero"`
	V6     bool         `json:"v6,omitempty"`
	// Gateway is that of no other pool: by it CreateNetwork finds the pool. Routed endpoints have it as their gateway.
	Gateway netip.Addr `json:"gateway"`
	// Network is the ID of Docker's network.
	Network string `json:"network,omitempty"`
}

// network is a Docker network.
type network struct {
	ID      string  `json:"id"`
	Options options `json:"options"`
	// Pools are the cluster's pools that the network's addresses are from, by family; empty: the cluster decides.
	Pools4 []string `json:"pools4,omitempty"`
	Pools6 []string `json:"pools6,omitempty"`
	// Subnets are the ranges of these pools.
	Subnets []netip.Prefix `json:"subnets,omitempty"`
}

// endpoint is an attachment.
type endpoint struct {
	// ID is the container ID of the attachment and the name of its pod.
	ID   string    `json:"id"`
	Boot string    `json:"boot"`
	Made time.Time `json:"made"`
	// Network and Endpoint are Docker's IDs. Endpoint is empty until CreateEndpoint.
	Network  string `json:"network"`
	Endpoint string `json:"endpoint,omitempty"`
	// Pool and Pool6 are the pools of its addresses, whose gateways it has. Pool is empty on a network of IPv6 only, Pool6 as
	// long as Docker has not requested an IPv6 address.
	Pool  string `json:"pool"`
	Pool6 string `json:"pool6,omitempty"`
	MAC   string `json:"mac"`
	// Address and Address6 are empty until the ADD has returned, and without their pools.
	Address  netip.Prefix `json:"address,omitzero"`
	Address6 netip.Prefix `json:"address6,omitzero"`
	// Offered6 is the attachment's IPv6 address, for which Docker asks in a second request on a network of both families.
	Offered6 netip.Prefix `json:"offered6,omitzero"`
	// Sandbox is Docker's key of the container: it is the same for all of its endpoints.
	Sandbox string `json:"sandbox,omitempty"`
	// Joined: the interface was handed over. Labeled: its container is known and packets pass.
	Joined    bool   `json:"joined,omitempty"`
	Labeled   bool   `json:"labeled,omitempty"`
	Container string `json:"container,omitempty"`
	// Ports are those to publish, as Docker has requested them, Published the same with the ports that the agent has
	// chosen. PortsPending: the agent may not have been asked yet.
	Ports        []model.PublishedPort `json:"ports,omitempty"`
	Published    []model.PublishedPort `json:"published,omitempty"`
	PortsPending bool                  `json:"portsPending,omitempty"`
}

// link is the interface's name in the node's namespace.
func (e endpoint) link() string { return "wd" + strings.TrimPrefix(e.ID, idPrefix) }

// address is the endpoint's IPv4 address, or its IPv6 address if it has no other one.
func (e endpoint) address() netip.Prefix {
	if e.Address.IsValid() {
		return e.Address
	}
	return e.Address6
}

// has reports whether it is an endpoint of a network that has an address.
func (e endpoint) has(network string, a netip.Addr) bool {
	return e.Network == network && (e.Address.Addr() == a || e.Address6.Addr() == a) && a.IsValid()
}

// records are the driver's pools, networks and endpoints, in memory and in files.
type records struct {
	dir string

	mu        sync.Mutex
	pools     map[string]pool
	networks  map[string]network
	endpoints map[string]endpoint
}

// The directories of the files.
const (
	dirPools     = "pools"
	dirNetworks  = "networks"
	dirEndpoints = "endpoints"
)

// openRecords reads the records below a directory. Endpoints of another boot are dropped: nothing of them is left.
func openRecords(dir, boot string) (*records, error) {
	r := &records{dir: dir, pools: map[string]pool{}, networks: map[string]network{}, endpoints: map[string]endpoint{}}
	if err := errors.Join(load(dir, dirPools, r.pools), load(dir, dirNetworks, r.networks),
		load(dir, dirEndpoints, r.endpoints)); err != nil {
		return nil, err
	}
	for id, e := range r.endpoints {
		if e.Boot != boot {
			if err := r.dropEndpoint(id); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// load reads the files of one kind.
func load[T any](dir, kind string, into map[string]T) error {
	at := filepath.Join(dir, kind)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	files, err := os.ReadDir(at)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, f := range files {
		id, is := strings.CutSuffix(f.Name(), ".json")
		if !is {
			continue
		}
		path := filepath.Join(at, f.Name())
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var one T
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		if err != nil {
			return fmt.Errorf("state file %s: %w (remove it if the host lost power)", path, err)
		}
		into[id] = one
	}
	return nil
}

func (r *records) path(kind, id string) string { return filepath.Join(r.dir, kind, id+".json") }

// write writes one record. Networks and pools must survive a power loss, as Docker's do.
func write[T any](r *records, kind, id string, into map[string]T, one T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return writeLocked(r, kind, id, into, one)
}

func writeLocked[T any](r *records, kind, id string, into map[string]T, one T) error {
	text, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("record of %s: %w", id, err)
	}
	if err := atomicfile.Write(r.path(kind, id), text, 0o600, atomicfile.Durable); err != nil {
		return fmt.Errorf("record of %s: %w", id, err)
	}
	into[id] = one
	return nil
}

func drop[T any](r *records, kind, id string, from map[string]T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := atomicfile.Remove(r.path(kind, id)); err != nil {
		return fmt.Errorf("record of %s: %w", id, err)
	}
	delete(from, id)
	return nil
}

func (r *records) putPool(p pool) error         { return write(r, dirPools, p.ID, r.pools, p) }
func (r *records) putNetwork(n network) error   { return write(r, dirNetworks, n.ID, r.networks, n) }
func (r *records) putEndpoint(e endpoint) error { return write(r, dirEndpoints, e.ID, r.endpoints, e) }
func (r *records) dropPool(id string) error     { return drop(r, dirPools, id, r.pools) }
func (r *records) dropNetwork(id string) error  { return drop(r, dirNetworks, id, r.networks) }
func (r *records) dropEndpoint(id string) error { return drop(r, dirEndpoints, id, r.endpoints) }

// updateEndpoint changes the record of an attachment, and returns it; false if there is none any more.
func (r *records) updateEndpoint(id string, change func(*endpoint)) (endpoint, bool, error) {
	return r.updateFirst(func(e endpoint) bool { return e.ID == id }, change)
}

// updateFirst changes the first endpoint that is the one, and returns it; false if there is none. What another call has
// changed or dropped since the caller looked is not written back: is sees the record as it is now.
func (r *records) updateFirst(is func(endpoint) bool, change func(*endpoint)) (endpoint, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.endpoints {
		if is(e) {
			change(&e)
			return e, true, writeLocked(r, dirEndpoints, id, r.endpoints, e)
		}
	}
	return endpoint{}, false, nil
}

// find returns the first value that is the one.
func find[T any](r *records, all map[string]T, is func(T) bool) (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range all {
		if is(one) {
			return one, true
		}
	}
	var none T
	return none, false
}

func (r *records) pool(id string) (pool, bool) {
	return find(r, r.pools, func(p pool) bool { return p.ID == id })
}

// families reports whether a network of Docker's has IPv4 and IPv6 addresses.
func (r *records) families(network string) (four, six bool) {
	_, four = find(r, r.pools, func(p pool) bool { return p.Network == network && !p.V6 })
	_, six = find(r, r.pools, func(p pool) bool { return p.Network == network && p.V6 })
	return four, six
}

func (r *records) network(id string) (network, bool) {
	return find(r, r.networks, func(n network) bool { return n.ID == id })
}

// routes returns the subnets of a network that no other network overlaps: its containers have routes to them by its own
// interface, so that they answer containers of this network by it. dockerd would not add a route that another network
// of the container has already.
func (r *records) routes(n network) (out []netip.Prefix) {
	for _, s := range n.Subnets {
		if _, shared := find(r, r.networks, func(o network) bool {
			return o.ID != n.ID && (len(o.Subnets) == 0 && o.Options.Network == "" || slices.ContainsFunc(o.Subnets, s.Overlaps))
		}); !shared {
			out = append(out, s)
		}
	}
	return out
}

// byEndpoint returns the endpoint of Docker's ID.
func (r *records) byEndpoint(id string) (endpoint, bool) {
	return find(r, r.endpoints, func(e endpoint) bool { return id != "" && e.Endpoint == id })
}

// endpoint is byEndpoint with an error if there is none.
func (r *records) endpoint(id string) (endpoint, error) {
	e, ok := r.byEndpoint(id)
	if !ok {
		return e, model.Errorf(model.CodeUnknownContainer, "start the container again", "endpoint %s is not known", id)
	}
	return e, nil
}

// byAddress returns the endpoint of a network that has an address.
func (r *records) byAddress(network string, a netip.Addr) (endpoint, bool) {
	return find(r, r.endpoints, func(e endpoint) bool { return e.has(network, a) })
}

// all returns the endpoints.
func (r *records) all() []endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]endpoint, 0, len(r.endpoints))
	for _, e := range r.endpoints {
		out = append(out, e)
	}
	return out
}

// namedContainer adds the name of the container whose attachment an error names.
func (r *records) namedContainer(err error) error {
	var bad *model.Error
	if !errors.As(err, &bad) {
		return err
	}
	for _, e := range r.all() {
		if e.Container != "" && strings.Contains(bad.Msg, e.ID) {
			return model.Errorf(bad.Code, bad.Hint, "%s, container %s", bad.Msg, e.Container)
		}
	}
	return err
}
