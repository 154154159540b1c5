// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/kube"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/podnetwork"
)

const (
	// conditionPeriod is how often the state of the pod network is looked at.
	conditionPeriod = 2 * time.Second
	// conditionHold is how long the same cause must last before the node is said to have no network: the controller
	// manager then taints it, and no pod is scheduled on it.
	conditionHold = 10 * time.Second
	// conditionReread is how long the server's condition is taken to be the one that was written: a Node object may have
	// been created again.
	conditionReread = 10 * time.Minute
)

// Cause is why the node's pod network is not available.
type Cause struct {
	// Reason is one of model's; empty if the network is available.
	Reason, Message string
}

// CauseOf returns the cause by the errors of the node's parts, which are nil without one: its own network, the runtime's
// network configuration, and what the mesh needs on this node. It returns false if nothing is known.
func CauseOf(own, configuration, mesh error) (Cause, bool) {
	switch {
	case errors.Is(own, podnetwork.ErrNoPrefix):
		return Cause{model.ReasonNoPodCIDR, own.Error()}, true
	case errors.Is(own, podnetwork.ErrNoPools):
		return Cause{model.ReasonNoAddressPool, own.Error()}, true
	case own != nil:
		return Cause{}, false
	case mesh != nil:
		return Cause{model.ReasonMeshFailed, mesh.Error()}, true
	case configuration != nil:
		return Cause{model.ReasonNotConfigured, configuration.Error()}, true
	}
	return Cause{}, true
}

// NodeAPI reads and patches the node's object.
type NodeAPI interface {
	Objects() store.Objects
	PatchNode(ctx context.Context, name string, n kube.NodeStatus) error
}

// ConditionConfig configures a Condition.
type ConditionConfig struct {
	// Node is the node's name.
	Node string
	Mode config.Mode
	API  NodeAPI
	// Cause returns the current state; false while nothing is known, which changes nothing.
	Cause func() (Cause, bool)
	Log   *slog.Logger
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Condition keeps the node's condition NetworkUnavailable.
type Condition struct {
	cfg ConditionConfig
	// last is what the server has, read at the time of read; nil if it has none, or it is not known.
	last *kube.NetworkCondition
	read time.Time
	// cause is the cause that was seen last, first at the time of since.
	cause Cause
	since time.Time
}

// NewCondition returns a Condition.
func NewCondition(cfg ConditionConfig) *Condition { return &Condition{cfg: cfg} }

// Run keeps the condition until ctx ends.
func (c *Condition) Run(ctx context.Context) error {
	pause, trouble := conditionPeriod, ""
	for {
		err := c.pass(ctx)
		switch {
		case err == nil:
			pause, trouble = conditionPeriod, ""
		default:
			if pause = min(2*pause, comparePeriod); err.Error() != trouble && ctx.Err() == nil {
				trouble = err.Error()
				c.cfg.Log.Warn("agent could not write the node's condition NetworkUnavailable", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.cfg.After(pause):
		}
	}
}

// pass writes the condition if it is not what it should be.
func (c *Condition) pass(ctx context.Context) error {
	want := c.want()
	if want == nil {
		return nil
	}
	now := c.cfg.Now()
	if c.read.IsZero() || now.Sub(c.read) >= conditionReread {
		have, err := c.get(ctx)
		if err != nil {
			return err
		}
		c.last, c.read = have, now
	}
	if want.Transition = c.last == nil || c.last.Unavailable != want.Unavailable; !want.Transition && !c.differs(*want) {
		return nil
	}
	if err := c.cfg.API.PatchNode(ctx, c.cfg.Node, kube.NodeStatus{Condition: want}); err != nil {
		return fmt.Errorf("node %s: %w", c.cfg.Node, err)
	}
	c.last = want
	c.cfg.Log.Info("agent has written the node's condition NetworkUnavailable", "status", want.Unavailable,
		"reason", want.Reason, "message", want.Message)
	return nil
}

// differs reports whether the server has another reason for the same status. A network that is available may have been
// another program's before, whose words are kept.
func (c *Condition) differs(want kube.NetworkCondition) bool {
	return want.Unavailable && (c.last.Reason != want.Reason || c.last.Message != want.Message)
}

// want returns the condition that the node should have; nil if that is not known, or not for long enough.
func (c *Condition) want() *kube.NetworkCondition {
	cause, known := c.cfg.Cause()
	if !known {
		return nil
	}
	if cause.Reason == "" {
		c.cause = Cause{}
		if c.cfg.Mode == config.ModeFlannel { // flannel's text, which other programs expect
			return &kube.NetworkCondition{Reason: model.ReasonFlannelIsUp, Message: "Flannel is running on this node"}
		}
		return &kube.NetworkCondition{Reason: model.ReasonWeftIsUp, Message: "weft is running on this node"}
	}
	now := c.cfg.Now()
	if cause.Reason != c.cause.Reason {
		c.since = now
	}
	if c.cause = cause; now.Sub(c.since) < conditionHold {
		return nil
	}
	return &kube.NetworkCondition{Unavailable: true, Reason: cause.Reason, Message: shortened(cause.Message)}
}

// maxMessage limits the condition's message, in bytes.
const maxMessage = 1024

func shortened(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-3], "") + "..."
}

// get reads the condition from the server, because facts do not keep conditions; nil if the node has none.
func (c *Condition) get(ctx context.Context) (*kube.NetworkCondition, error) {
	o, err := c.cfg.API.Objects().Get(ctx, store.Nodes(), store.NodeKey(c.cfg.Node))
	if err != nil {
		return nil, err
	}
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(o.Raw, &n); err != nil {
		return nil, fmt.Errorf("node %s: %w", c.cfg.Node, err)
	}
	for _, x := range n.Status.Conditions {
		if x.Type == "NetworkUnavailable" && (x.Status == "True" || x.Status == "False") {
			return &kube.NetworkCondition{Unavailable: x.Status == "True", Reason: x.Reason, Message: x.Message}, nil
		}
	}
	return nil, nil
}
