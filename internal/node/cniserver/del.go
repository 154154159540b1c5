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

// Records is the part of the ledger that the server reads.
type Records interface {
	// Keys returns the attachments of a container.
	Keys(containerID string) ([]model.AttachmentKey, error)
	Get(k model.AttachmentKey) (attach.Record, bool, error)
	// List returns all records that can be read; the error joins those of the others.
	List() ([]attach.Record, error)
}

// del detaches the networks in the configuration, in reverse order, then the call's other attachments in the ledger:
// the configuration may have changed since the ADD, or be gone. A failure does not stop the others.
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
	rest, err := vs.otherRecords(call, named)
	jobs := backwards(all, ns)
	for _, r := range rest {
		jobs = append(jobs, attach.Job{Network: r.Network, Request: r.Request, Netns: ns})
	}
	lines := vs.logOf(call)
	for i, err := range vs.cfg.Attacher.DelAll(ctx, jobs) {
		if err != nil && i < len(all) {
			err = inNetwork(err, all, len(all)-1-i)
		}
		if err == nil {
			lines.deleted(jobs[i].Network, jobs[i].Request)
		}
		errs = append(errs, err)
	}
	errs = append(errs, err)
	for _, r := range rest {
		if r.Request.Origin != nil {
			multinet.DropDeviceInfo(r.Request.Origin.DeviceFile)
		}
	}
	if confErr != nil && len(rest) == 0 && !multinet.ByMultus(call.Request) {
		// The ledger has no attachment, and the configuration names no network: its author should see the error. Multus
		// passes such a configuration each time: there is nothing left to detach.
		errs = append(errs, confErr)
	}
	return errors.Join(errs...)
}

// backwards returns the jobs of a DEL in reverse order of the ADD.
func backwards(all []multinet.Attachment, ns *netns.NS) []attach.Job {
	jobs := make([]attach.Job, 0, len(all))
	for _, d := range slices.Backward(all) {
		jobs = append(jobs, job(d, ns))
	}
	return jobs
}

// detachAll detaches all of them in reverse order; a failure does not stop the others.
func (vs *verbs) detachAll(ctx context.Context, all []multinet.Attachment, ns *netns.NS) error {
	errs := vs.cfg.Attacher.DelAll(ctx, backwards(all, ns))
	for i, err := range errs {
		if err != nil {
			errs[i] = inNetwork(err, all, len(all)-1-i)
		}
	}
	return errors.Join(errs...)
}

// otherRecords returns the records of the call that its configuration does not name.
func (vs *verbs) otherRecords(call cni.Call, named map[model.AttachmentKey]bool) ([]attach.Record, error) {
	keys, err := vs.cfg.Records.Keys(call.Request.ContainerID)
	if err != nil {
		return nil, err
	}
	var rest []attach.Record
	var errs []error
	for _, k := range slices.Backward(keys) {
		if named[k] || plugin.IsIPAMNetwork(k.Network) { // released by the plugin that requested them
			continue
		}
		r, ok, err := vs.cfg.Records.Get(k)
		switch {
		case err != nil:
			errs = append(errs, err)
		case ok && (k.IfName == call.Request.IfName || sameCall(r.Request.Part, call.Request)):
			rest = append(rest, r)
		}
	}
	return rest, errors.Join(errs...)
}

// sameCall reports whether a record is part of the call; a call without a valid configuration has no network.
func sameCall(part string, r model.Request) bool {
	if r.Network == "" {
		return strings.HasSuffix(part, "/"+r.IfName)
	}
	return part == multinet.Part(r)
}

// replay does a DEL from the queue. The runtime was already answered with success, and has usually removed the
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
