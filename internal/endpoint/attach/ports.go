// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"strings"
	"syscall"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// ofPorts is the fault when another attachment has a port of the node, or when a condition for one is not understood:
// no other words of a rule come from a configuration.
func ofPorts(err error) error {
	var rule *kernel.BadRule
	if errors.As(err, &rule) {
		return model.Faultf(model.CodeInvalidConf, "docs/plugins/portmap.md says which conditions are understood",
			"plugin portmap: conditions: %w", rule)
	}
	var taken *kernel.Taken
	if !errors.As(err, &taken) {
		return nil
	}
	if addr, ok := plugin.TakenFloating(taken.Table, taken.Key); ok {
		return model.Faultf(model.CodeTaken, "choose another floating IP, or delete that pod",
			"floating IP %s is taken by attachment %s",
			addr, strings.TrimPrefix(taken.By, markPrefix))
	}
	port, ok := plugin.TakenPort(taken.Table, taken.Key)
	if !ok {
		return nil
	}
	beside := ""
	if other, ok := plugin.TakenPort(taken.Table, taken.Beside); ok && other != port {
		beside = ", as " + other
	}
	return model.Faultf(model.CodeTaken, "choose another hostPort, or stop that container",
		"hostPort %s is taken by attachment %s%s",
		port, strings.TrimPrefix(taken.By, markPrefix), beside)
}

// ofMAC is the fault when another macvlan upon the same master has the MAC that is asked for.
func ofMAC(err error, network string, f state.Fragment) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	for _, l := range f.Pod.Links {
		if l.Macvlan != nil && l.Parent != nil && l.MAC != (state.MAC{}) {
			return model.Faultf(model.CodeTaken, "choose another, or DEL the attachment that has it",
				"network %q: mac %s is taken by another interface upon master %q", network, l.MAC, l.Parent.Name)
		}
	}
	return nil
}
