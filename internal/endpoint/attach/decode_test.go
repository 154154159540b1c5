// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// decodeCounter is a planner that counts how often it decodes a configuration, and how often it gets an undecoded one.
type decodeCounter struct {
	plugin.Planner
	decodes, undecoded *atomic.Int32
}

func (c decodeCounter) Decode(conf model.PluginConf) (any, error) {
	c.decodes.Add(1)
	return c.Planner.Decode(conf)
}

func (c decodeCounter) Observe(in plugin.Input) ([]state.Query, error) {
	c.note(in)
	return c.Planner.Observe(in)
}

func (c decodeCounter) Plan(in plugin.Input) (plugin.Step, error) {
	c.note(in)
	return c.Planner.Plan(in)
}

func (c decodeCounter) note(in plugin.Input) {
	if in.Decoded == nil {
		c.undecoded.Add(1)
	}
}

// Each element of a list is decoded once, however often its planner is called, and once for all the calls that have it.
func TestConfigurationIsDecodedOnce(t *testing.T) {
	n := newNode(t)
	var decodes, undecoded atomic.Int32
	n.cfg.Planners = map[string]plugin.Planner{}
	for typ, p := range plugin.Builtin() {
		n.cfg.Planners[typ] = decodeCounter{p, &decodes, &undecoded}
	}
	n.Attacher = attach.New(n.cfg)
	const elements = 3
	list := n.list(bridge, `{"type":"tuning","mtu":1400}`,
		`{"type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":8088,"containerPort":80,"protocol":"tcp"}]}}`)
	id, ns := n.pod()
	job := n.job(list, id, ns)
	result := n.add(job)
	if got := decodes.Load(); got != elements {
		t.Errorf("an ADD of %d elements has decoded %d times", elements, got)
	}
	job.Prev = &result
	if err := n.Check(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Status(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
	if err := n.Del(t.Context(), job); err != nil { // by the configuration alone
		t.Error(err)
	}
	other, otherNS := n.pod()
	again := n.job(list, other, otherNS)
	n.add(again)
	if err := n.Del(t.Context(), again); err != nil {
		t.Error(err)
	}
	if got := decodes.Load(); got != elements {
		t.Errorf("all calls with %d elements have decoded %d times", elements, got)
	}
	if got := undecoded.Load(); got != 0 {
		t.Errorf("planners were asked %d times by a configuration that nobody has decoded", got)
	}
	n.clean("the end")
}
