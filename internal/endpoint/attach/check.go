// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
)

// checker handles CHECK and STATUS. It changes nothing.
type checker struct {
	host       *kernel.Conn
	boot       string
	agent      bool
	namespaces *namespaces
	locks      *lockSet
	records    *notifyingStore
	catalog    *catalog
	resolver   *resolver
	delegates  *delegator
	vms        *podVMs
}

// check reports whether an attachment is still as its ADD left it. The error lists what differs.
func (c *checker) check(ctx context.Context, job Job) error {
	if job.Network.DisableCheck {
		return nil
	}
	if _, err := c.namespaces.id(job); err != nil {
		return err
	}
	if job.Netns == nil {
		return model.Errorf(model.CodeInvalidNetns, "", "CNI_NETNS %q is no network namespace", job.Request.Netns)
	}
	job, err := c.resolver.resolveRecorded(job)
	if err != nil {
		return err
	}
	if err := c.catalog.validate(job); err != nil {
		return err
	}
	release, err := c.locks.of(job.Request.Network).Container(ctx, job.Request.ContainerID)
	if err != nil {
		return err
	}
	defer release()
	spaces, done, err := c.namespaces.open(job.Netns)
	if err != nil {
		return err
	}
	defer done()
	rec, found, err := c.records.get(job.Request.Key())
	if err != nil {
		return err
	}
	if found && rec.Stage != Done {
		return model.Errorf(model.CodeDiffers, "DEL it, then ADD it again", "attachment %s is %s", rec.Key(), rec.Stage)
	}
	var diff []string
	prev := job.Prev
	if found {
		if prev == nil {
			prev = rec.Result
		}
		diff, err = c.checkRecord(ctx, rec, prev, spaces)
	} else if diff, err = checkResult(ctx, job, spaces); err == nil {
		diff, err = c.checkConf(ctx, job, spaces, diff)
	}
	if err != nil {
		return err
	}
	if len(diff) > 0 {
		return model.Errorf(model.CodeDiffers, "DEL the attachment and ADD it again",
			"network %q, container %s, interface %s: %s",
			job.Request.Network, job.Request.ContainerID, job.Request.IfName, strings.Join(diff, "; "))
	}
	return c.checkPlugins(ctx, job, prev, rec.Standby)
}

// checkRecord compares the kernel and the caller's result with the record.
func (c *checker) checkRecord(
	ctx context.Context, rec Record, prev *model.Result, spaces kernel.Spaces,
) ([]string, error) {
	want, err := expectedFragment(ctx, c.agent, rec, prev, spaces)
	if err != nil {
		return nil, err
	}
	found, err := compare(ctx, spaces, c.vms.compose(rec.Key(), want))
	if err != nil {
		return nil, err
	}
	var diff []string
	for _, d := range found {
		diff = append(diff, d.String())
	}
	if rec.Result == nil {
		return diff, nil
	}
	for _, ip := range rec.Result.IPs {
		same := func(o model.IP) bool { return o.Address == ip.Address }
		if !slices.ContainsFunc(prev.IPs, same) {
			diff = append(diff, fmt.Sprintf("prevResult: missing ips address %s", ip.Address))
		}
	}
	return diff, nil
}

// checkPlugins runs the CHECK of allocators and foreign plugins.
func (c *checker) checkPlugins(ctx context.Context, job Job, prev *model.Result, standby bool) error {
	for _, conf := range job.Network.Plugins {
		if c.catalog.planners[conf.Type] == nil {
			if err := c.delegates.check(ctx, job, conf, conf.Type, prev); err != nil {
				return err
			}
			continue
		}
		typ, err := c.catalog.ipamType(conf)
		if err != nil {
			return err
		}
		if typ == "" {
			continue
		}
		if alloc := c.catalog.allocators[typ]; alloc == nil {
			err = c.delegates.check(ctx, job, conf, typ, prev)
		} else if prev != nil {
			q := allocateRequest(job.Request, conf)
			q.Standby = standby
			err = alloc.Check(ctx, q, *prev)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkConf compares an unrecorded attachment with what its configuration implies, and appends the differences.
func (c *checker) checkConf(ctx context.Context, job Job, spaces kernel.Spaces, diff []string) ([]string, error) {
	for _, conf := range job.Network.Plugins {
		p := c.catalog.capabilities(conf).Check
		if p == nil {
			continue
		}
		in := c.catalog.input(conf, job.Request)
		in.Chain.Prev = job.Prev
		var err error
		if in.Answers, err = spaces.Observe(ctx, p.ExpectQueries(in)); err != nil {
			return nil, err
		}
		want, err := p.Expect(in)
		if err != nil {
			return nil, err
		}
		found, err := compare(ctx, spaces, want)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			diff = append(diff, d.String())
		}
	}
	return diff, nil
}
