// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
)

// ConditionConsistent is the condition of a pool without findings: blocks, reservations, nodes and pods agree.
const ConditionConsistent = "Consistent"

// reservationGrace is how long a reservation's pod must have been gone before it is deleted, because the lists of a
// starting server may be incomplete.
const reservationGrace = 15 * time.Minute

// check audits all pools, blocks, nodes and pods, and writes the result into each pool's status. It repairs only
// reservations for imported pods that are gone.
func (c *Controller) check(ctx context.Context) error {
	now := c.cfg.Now()
	result, err := audit.Inspect(ctx, c.cfg.Objects)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.report.Findings, c.report.Checked, c.checked = result.Findings, now, now
	c.mu.Unlock()
	var errs []error
	still := map[string]time.Time{}
	for _, f := range result.Findings {
		if !f.Stale() {
			continue
		}
		id := f.Object + "\x00" + f.Msg
		since, known := c.goneSince[id]
		if !known {
			since = now
		}
		if still[id] = since; known && now.Sub(since) >= reservationGrace {
			err := f.Repair(ctx, c.cfg.Objects)
			if errors.Is(err, store.ErrConflict) {
				continue // changed meanwhile: retried by the next audit
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				errs = append(errs, fmt.Errorf("%s: %w", f.Object, err))
				continue
			}
			c.cfg.Log.Info("reservation of a deleted pod was removed", "object", f.Object, "finding", f.Msg)
			delete(still, id)
		}
	}
	c.goneSince = still
	s, err := readPools(ctx, c.cfg.Objects, now)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range s.names() {
		errs = append(errs, s.writeCondition(ctx, s.pools[name], consistent(name, result.Findings)))
	}
	return errors.Join(errs...)
}

// consistent returns a pool's condition from its findings.
func consistent(pool string, findings []audit.Finding) model.Condition {
	n, says := 0, ""
	for _, f := range findings {
		if f.Pool == pool {
			if n++; n == 1 {
				says = f.Object + ": " + f.Msg
			}
		}
	}
	if n == 0 {
		return model.Condition{
			Type: ConditionConsistent, True: true, Reason: "NoFindings", Message: "blocks, reservations, nodes and pods agree",
		}
	}
	if n > 1 {
		says = fmt.Sprintf("%d findings, first %s", n, says)
	}
	const most = 1024
	if len(says) > most {
		says = says[:most]
	}
	return model.Condition{Type: ConditionConsistent, Reason: "Findings", Message: says}
}

// annotation returns an object's annotation.
func annotation(o store.Object, key string) string {
	var head struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Raw, &head) != nil {
		return ""
	}
	return head.Metadata.Annotations[key]
}
