// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
)

// checkTime bounds the CHECK of one attachment in checkAll.
const checkTime = 5 * time.Second

// checkAll checks every finished attachment, as its runtime would, until ctx ends. It changes nothing.
func (c *checker) checkAll(ctx context.Context) (model.CheckReport, error) {
	var report model.CheckReport
	records, err := c.records.list()
	for _, rec := range records {
		if rec.Stage != Done || rec.Boot != c.boot {
			continue
		}
		report.Attachments++
		checked, err := c.checkOne(ctx, rec)
		if !checked {
			report.Unchecked++
			continue
		}
		if err == nil {
			continue
		}
		p := model.CheckProblem{Attachment: rec.Key().String(), Gone: errors.Is(err, netns.ErrGone), Message: err.Error()}
		if pod := rec.Pod(); pod.Name != "" {
			p.Pod = pod.String()
		}
		report.Problems = append(report.Problems, p)
	}
	return report, err
}

// checkOne checks one attachment; checked is false if it is busy or changed meanwhile.
func (c *checker) checkOne(ctx context.Context, rec Record) (checked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if rec.Container != nil {
		return c.checkHandedOver(ctx, rec)
	}
	ns, err := netns.Open(rec.Request.Netns)
	if err != nil {
		return true, err
	}
	defer func() { _ = ns.Close() }()
	if id, err := ns.ID(); err == nil && id != rec.NetnsID {
		return true, netns.ErrGone
	}
	err = c.check(ctx, Job{Network: rec.Network, Request: rec.Request, Prev: rec.Result, Netns: ns, OwnNetns: true})
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil { // a DEL may have begun meanwhile
		if now, found, _ := c.records.get(rec.Key()); !found || now.Stage != Done || now.Serial != rec.Serial {
			return false, nil
		}
	}
	return true, err
}
