// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/poolconf"
	"github.com/weft-net/weft/internal/ipam/static"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// releaseEnded deletes the attachments whose pods are gone, or that were never finished, as their DEL would have done,
// and returns the others.
func (n *Node) releaseEnded(ctx context.Context) ([]attach.Record, error) {
	reaper := kernel.NewReaper(n.cfg.Host, n.cfg.Log)
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = reaper.Run(running) }()
	defer func() { cancel(); <-done }()
	if err := reaper.Wait(ctx); err != nil { // links that a killed agent has not deleted yet
		return nil, err
	}
	s := n.cfg.Settings
	if _, err := os.Stat(filepath.Join(s.StateDir, ledger.FileName)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l, err := ledger.Open(s.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	records, err := l.List()
	if err != nil {
		return nil, err
	}
	attacher := attach.New(attach.Config{
		Records: l, Host: n.cfg.Host, Planners: plugin.InAgent(), Allocators: allocators(s.AddressDir),
		Log: n.cfg.Log, Now: n.cfg.Now, Boot: n.cfg.Boot,
	})
	var stay []attach.Record
	for _, r := range slices.Backward(records) {
		if r.Boot == n.cfg.Boot && r.Stage == attach.Done && !netns.Gone(r.Request.Netns, r.NetnsID) {
			stay = append(stay, r)
			continue
		}
		if err := attacher.Del(ctx, attach.Job{Network: r.Network, Request: r.Request}); err != nil {
			return nil, fmt.Errorf("attachment %s, whose pod is gone: %w", r.Key(), err)
		}
	}
	return stay, nil
}

// ofOthers reports whether only other vendors' plugins have made an attachment. Nothing of weft is left of it.
func ofOthers(r attach.Record) bool {
	return !slices.ContainsFunc(r.Acts, func(a attach.Act) bool { return a.Kind != attach.ActExec })
}

// pods returns the names of the pods of attachments, of others the container.
func pods(records []attach.Record) []string {
	out := []string{}
	for _, r := range records {
		name := "container " + r.Request.ContainerID
		if e, ok := r.Endpoint(); ok {
			name = e.Pod.String()
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// allocators return addresses that are recorded on the node. Those of the cluster's blocks are returned with their
// objects, and leases of DHCP end.
func allocators(addressDir string) map[string]ipam.Allocator {
	table := map[string]ipam.Allocator{}
	for _, a := range []ipam.Allocator{
		hostlocal.New(hostlocal.Config{DataDir: addressDir, CallerKnows: true}), static.New(),
		objectless(poolconf.TypeCalico), objectless(poolconf.TypeWeft), objectless(poolconf.TypeWhereabouts), objectless("dhcp"),
	} {
		table[a.Type()] = a
	}
	return table
}

// objectless is an allocator of this type whose addresses are not recorded on the node.
type objectless string

func (e objectless) Type() string                 { return string(e) }
func (objectless) Keys() []string                 { return nil }
func (objectless) Validate(json.RawMessage) error { return nil }
func (e objectless) Add(context.Context, ipam.Request) (model.Result, error) {
	return model.Result{}, model.Errorf(model.CodeNotAvailable, "", "ipam %s: weft is being uninstalled", string(e))
}
func (objectless) Del(context.Context, ipam.Request) error                       { return nil }
func (objectless) Check(context.Context, ipam.Request, model.Result) error       { return nil }
func (objectless) Status(context.Context, ipam.Request) error                    { return nil }
func (objectless) GC(context.Context, ipam.Request, []model.AttachmentKey) error { return nil }
func (objectless) Capabilities() ipam.Capabilities                               { return ipam.Capabilities{} }
