// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/state"
)

// iptables speaks of the namespace's iptables; only values that name some ever get there.
func (c *Conn) iptables() *iptables.Conn { return iptables.New(c.ns) }

func (v *view) applyIPTables(ctx context.Context) error {
	if len(v.want.IPTables) == 0 {
		return nil
	}
	return in(v.name, v.conn.iptables().Apply(ctx, v.want.IPTables))
}

func (v *view) removeIPTables(ctx context.Context) error {
	if len(v.want.IPTables) == 0 || v.conn == nil {
		return nil
	}
	return in(v.name, v.conn.iptables().Remove(ctx, v.want.IPTables))
}

func (v *view) diffIPTables(ctx context.Context) ([]state.Difference, error) {
	if len(v.want.IPTables) == 0 {
		return nil, nil
	}
	d, err := v.conn.iptables().Diff(ctx, v.want.IPTables)
	for i := range d {
		d[i].Space = v.name
	}
	return d, err
}

// answerProgram tells whether the host has a program, and where.
func answerProgram(name string) state.Answer {
	path, err := iptables.Find(name)
	return state.Answer{Found: err == nil, Value: path}
}
