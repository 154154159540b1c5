// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/cni/wire"
	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/multinet"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// Memory is what the server asks of the ledger.
type Memory interface {
	// Keys are the attachments of a container.
	Keys(containerID string) ([]model.AttachmentKey, error)
	Get(k model.AttachmentKey) (attach.Record, bool, error)
	// List gives all records that can be read; the error joins what is wrong with the others.
	List() ([]attach.Record, error)
}

// del detaches in reverse whatever the configuration names, then what the ledger knows of the call beside that: the
// configuration may have changed since the ADD, or be gone. All are tried, whatever happens with the others.
func (vs *verbs) del(ctx context.Context, call cni.Call, ns *netns.NS, confErr error) error {
	vs.pods.drop(call.Request.ContainerID)
	var all []multinet.Attachment
	var errs []error
	if confErr == nil {
		var done bool
		if all, done, confErr = vs.ownOrMultus(ctx, call, ns); done {
			return confErr
		}
	}
	named := map[model.AttachmentKey]bool{}
	for _, d := range all {
		named[d.Request.Key()] = true
	}
	rest, err := vs.remembered(call, named)
	jobs := backwards(all, ns)
	for _, r := range rest {
		jobs = append(jobs, attach.Job{Network: r.Network, Request: r.Request, Netns: ns})
	}
	for i, err := range vs.cfg.Attacher.DelAll(ctx, jobs) {
		if err != nil && i < len(all) {
			err = place(err, all, len(all)-1-i)
		}
		errs = append(errs, err)
	}
	errs = append(errs, err)
	for _, r := range rest {
		if r.Request.Origin != nil {
			multinet.DropDeviceInfo(r.Request.Origin.DeviceFile)
		}
	}
	if confErr != nil && len(rest) == 0 {
		// Nothing tells of an attachment, and nothing says which networks were meant: whoever wrote that should know.
		errs = append(errs, confErr)
	}
	return errors.Join(errs...)
}

// backwards are the jobs of a DEL: what was attached last goes first.
func backwards(all []multinet.Attachment, ns *netns.NS) []attach.Job {
	jobs := make([]attach.Job, 0, len(all))
	for _, d := range slices.Backward(all) {
		jobs = append(jobs, job(d, ns))
	}
	return jobs
}

// detachAll detaches all of them, backwards and whatever happens with the others.
func (vs *verbs) detachAll(ctx context.Context, all []multinet.Attachment, ns *netns.NS) error {
	errs := vs.cfg.Attacher.DelAll(ctx, backwards(all, ns))
	for i, err := range errs {
		if err != nil {
			errs[i] = place(err, all, len(all)-1-i)
		}
	}
	return errors.Join(errs...)
}

// remembered are the records of the call that its configuration does not name.
func (vs *verbs) remembered(call cni.Call, named map[model.AttachmentKey]bool) ([]attach.Record, error) {
	keys, err := vs.cfg.Memory.Keys(call.Request.ContainerID)
	if err != nil {
		return nil, err
	}
	var rest []attach.Record
	var errs []error
	for _, k := range slices.Backward(keys) {
		if named[k] || plugin.IsIPAMNetwork(k.Network) { // the plugin that had them allocated gives them back
			continue
		}
		r, ok, err := vs.cfg.Memory.Get(k)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok && (k.IfName == call.Request.IfName || sameCall(r.Request.Part, call.Request)):
			rest = append(rest, r)
		}
	}
	return rest, errors.Join(errs...)
}

// sameCall tells whether a record's Part is the call; a call whose configuration is gone has no network.
func sameCall(part string, r model.Request) bool {
	if r.Network == "" {
		return strings.HasSuffix(part, "/"+r.IfName)
	}
	return part == multinet.Part(r)
}

// replay does a DEL from the queue. The runtime was told long ago that it is done, and most often has removed the
// namespace since.
func (vs *verbs) replay(ctx context.Context, r wire.Request) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	c := &call{ctx: ctx, cancel: end, start: time.Now(), fd: -1}
	defer c.close()
	if path := r.Getenv("CNI_NETNS"); path != "" {
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
			c.netns = fd
		}
	}
	_, err := vs.outcome(c, r)
	return err
}
