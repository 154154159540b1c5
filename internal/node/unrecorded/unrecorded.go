// SPDX-License-Identifier: Apache-2.0

// Package unrecorded finds the interfaces of running pods that weft attached and has no record of: those of an agent
// that lost its state directory. Their addresses must not be allocated again, and policies apply to them as to others.
//
// The kernel has what is needed: the marks of both ends name the attachment, and the addresses are those of the
// container's end, or those that the node routes to the other end.
package unrecorded

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/state"
)

const (
	// named is where runtimes keep the namespaces of their pods.
	named = "/run/netns"
	// processes is where the namespaces of processes are: those of pods that are kept elsewhere, as far as the agent sees
	// their processes.
	processes = "/proc"
)

// Interface is a pod's interface without a record.
type Interface struct {
	Attachment model.AttachmentKey
	// HostLink is the node's end, and HostEnd what that end is; both are empty if there is none, as for a macvlan.
	HostLink string
	HostEnd  model.HostEnd
	Addrs    []netip.Addr
}

// Records lists the attachments that are recorded on this node.
type Records interface {
	List() ([]attach.Record, error)
}

// Find returns the interfaces without a record, sorted by attachment. It must not run while calls are served, which create
// interfaces. On a node where none is missing it reads the node's links only.
func Find(ctx context.Context, host *kernel.Conn, records Records) ([]Interface, error) {
	all, err := records.List()
	if err != nil && len(all) == 0 {
		return nil, err
	}
	f := &finder{recorded: map[model.AttachmentKey]bool{}, found: map[model.AttachmentKey]*Interface{}}
	for _, rec := range all {
		f.recorded[rec.Key()] = true
	}
	if err := f.readNode(ctx, host); err != nil {
		return nil, err
	}
	// A macvlan has no end on the node: with records for others it is not lost.
	if len(f.found) == 0 && len(all) > 0 {
		return nil, nil
	}
	err = f.readContainers(ctx)
	return f.sorted(), err
}

// finder collects the interfaces.
type finder struct {
	recorded map[model.AttachmentKey]bool
	found    map[model.AttachmentKey]*Interface
}

// missing returns the attachment that a mark names if it has no record.
func (f *finder) missing(mark string) (model.AttachmentKey, bool) {
	text, ok := strings.CutPrefix(mark, attach.MarkPrefix)
	part := strings.Split(text, "/")
	if !ok || len(part) != 3 || slices.Contains(part, "") {
		return model.AttachmentKey{}, false // of several owners, of the mesh, or truncated
	}
	k := model.AttachmentKey{Network: part[0], ContainerID: part[1], IfName: part[2]}
	return k, !f.recorded[k]
}

// readNode finds interfaces by their ends on the node, with the addresses that are routed to them.
func (f *finder) readNode(ctx context.Context, host *kernel.Conn) error {
	links, err := host.Links(ctx)
	if err != nil {
		return fmt.Errorf("links of the node: %w", err)
	}
	by := map[string]*Interface{}
	for _, l := range links {
		k, missing := f.missing(l.Alias)
		if !missing || l.Kind != state.Veth && l.Kind != state.Tap {
			continue
		}
		one := &Interface{Attachment: k, HostLink: l.Name, HostEnd: model.HostEndRouted}
		if l.Master != "" {
			one.HostEnd = model.HostEndPort
		}
		f.found[k], by[l.Name] = one, one
	}
	if len(by) == 0 {
		return nil
	}
	space, err := host.ReadAll(ctx)
	if err != nil {
		return fmt.Errorf("routes of the node: %w", err)
	}
	for _, r := range space.Routes {
		if one := by[r.Link]; one != nil && r.Dst.IsSingleIP() {
			one.add(r.Dst.Addr())
		}
	}
	return nil
}

// readContainers reads the addresses of the containers' ends. A namespace that cannot be read is skipped: it is another
// user's, or gone.
func (f *finder) readContainers(ctx context.Context) error {
	own, err := netns.Current()
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }()
	id, err := own.ID()
	if err != nil {
		return err
	}
	read := map[uint64]bool{id: true}
	for _, path := range list(named, func(name string) string { return name }) {
		f.readContainer(ctx, path, read, true)
	}
	if len(f.found) == 0 {
		return nil
	}
	// Processes of other nodes may be here too, when several share a host: only attachments of this node count.
	for _, path := range list(processes, func(name string) string {
		if strings.Trim(name, "0123456789") != "" {
			return ""
		}
		return filepath.Join(name, "ns", "net")
	}) {
		f.readContainer(ctx, path, read, false)
	}
	return ctx.Err()
}

// list returns the paths of namespaces in a directory: what name returns for each entry, none for an empty one.
func list(dir string, name func(string) string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		if rest := name(e.Name()); rest != "" {
			paths = append(paths, filepath.Join(dir, rest))
		}
	}
	return paths
}

// readContainer adds the addresses of the interfaces in one namespace, once; further reports whether interfaces without an
// end on the node are added.
func (f *finder) readContainer(ctx context.Context, path string, read map[uint64]bool, further bool) {
	ns, err := netns.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = ns.Close() }()
	id, err := ns.ID()
	if err != nil || read[id] {
		return
	}
	read[id] = true
	conn, err := kernel.Dial(ns)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	space, err := conn.ReadAll(ctx)
	if err != nil {
		return
	}
	by := map[string]*Interface{}
	for _, l := range space.Links {
		k, missing := f.missing(l.Alias)
		one := f.found[k]
		if missing && one == nil && further && l.Name == k.IfName {
			one = &Interface{Attachment: k}
			f.found[k] = one
		}
		if missing && one != nil {
			by[l.Name] = one
		}
	}
	for _, a := range space.Addrs {
		if one := by[a.Link]; one != nil {
			one.add(a.Prefix.Addr())
		}
	}
}

func (i *Interface) add(a netip.Addr) {
	if !slices.Contains(i.Addrs, a) {
		i.Addrs = append(i.Addrs, a)
	}
}

func (f *finder) sorted() []Interface {
	var out []Interface
	for _, one := range f.found {
		slices.SortFunc(one.Addrs, netip.Addr.Compare)
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b Interface) int { return strings.Compare(a.Attachment.String(), b.Attachment.String()) })
	return out
}
