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

// ConditionConsistent says that pools, blocks, nodes and pods agree.
const ConditionConsistent = "Consistent"

// grace is for how long a reservation must have been a gone pod's before it goes: lists of a server that starts are
// believed the second time.
const grace = 15 * time.Minute

// check compares everything, and says in each pool's status whether it agrees. The only thing that it repairs are
// reservations for pods of another network that are gone.
func (c *Controller) check(ctx context.Context) error {
	now := c.cfg.Now()
	picture, err := audit.Inspect(ctx, c.cfg.Objects)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.report.Findings, c.report.Checked, c.checked = picture.Findings, now, now
	c.mu.Unlock()
	var errs []error
	still := map[string]time.Time{}
	for _, f := range picture.Findings {
		if !f.Leftover() {
			continue
		}
		id := f.Object + "\x00" + f.Msg
		since, known := c.gone[id]
		if !known {
			since = now
		}
		if still[id] = since; known && now.Sub(since) >= grace {
			err := f.Repair(ctx, c.cfg.Objects)
			if errors.Is(err, store.ErrConflict) {
				continue // somebody was faster: at the next look
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				errs = append(errs, fmt.Errorf("%s: %w", f.Object, err))
				continue
			}
			c.cfg.Log.Info("reservation of a pod that is gone", "object", f.Object, "what", f.Msg)
			delete(still, id)
		}
	}
	c.gone = still
	s, err := look(ctx, c.cfg.Objects, now)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range s.names() {
		errs = append(errs, s.say(ctx, s.pools[name], consistent(name, picture.Findings)))
	}
	return errors.Join(errs...)
}

// consistent is the condition of a pool by what was found of it.
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

// annotation is one of an object's.
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
