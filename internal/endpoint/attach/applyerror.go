// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"strings"
	"syscall"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/effect"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/plan/plugin"
	"github.com/weft-net/weft/internal/state"
)

// portError returns the error for a host port that another attachment has, or for an invalid condition of a port
// mapping; nil for other errors.
func portError(err error) error {
	var rule *kernel.BadRule
	if errors.As(err, &rule) {
		return model.Errorf(model.CodeInvalidConf, "docs/reference/plugins/portmap.md says which conditions are understood",
			"plugin portmap: conditions: %w", rule)
	}
	var taken *kernel.Taken
	if !errors.As(err, &taken) {
		return nil
	}
	if addr, ok := plugin.TakenFloating(taken.Table, taken.Key); ok {
		return model.Errorf(model.CodeInUse, "choose another floating IP, or delete that pod",
			"floating IP %s is taken by attachment %s",
			addr, strings.TrimPrefix(taken.By, MarkPrefix))
	}
	port, ok := plugin.TakenPort(taken.Table, taken.Key)
	if !ok {
		return nil
	}
	other := ""
	if o, ok := plugin.TakenPort(taken.Table, taken.ConflictingKey); ok && o != port {
		other = ", as " + o
	}
	return model.Errorf(model.CodeInUse, "choose another hostPort, or stop that container",
		"hostPort %s is taken by attachment %s%s",
		port, strings.TrimPrefix(taken.By, MarkPrefix), other)
}

// duplicateError returns the error for an address that another host on the link has; nil for other errors.
func duplicateError(err error, network string) error {
	var duplicate *effect.DuplicateError
	if !errors.As(err, &duplicate) {
		return nil
	}
	if duplicate.Probing {
		return model.Errorf(model.CodeTryAgain, "the kubelet tries again; the other host has the address by then, or has given up",
			"network %q: %w", network, err)
	}
	return model.Errorf(model.CodeInUse,
		"choose another address, exclude it from the range, or take it from that host", "network %q: %w", network, err)
}

// deviceError returns the error for a macvtap whose /dev/tapN is still that of an earlier pod's; nil for other errors.
func deviceError(err error, network string) error {
	if !errors.Is(err, effect.ErrOtherDevice) {
		return nil
	}
	return model.Errorf(model.CodeTryAgain, "the kubelet tries again; the pod that had the device is being deleted",
		"network %q: %w", network, err)
}

// macError returns the error for a requested MAC that another macvlan on the same master has; nil for other errors.
func macError(err error, network string, f state.Fragment) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	for _, l := range f.Pod.Links {
		if l.Macvlan != nil && l.Parent != nil && l.MAC != (state.MAC{}) {
			return model.Errorf(model.CodeInUse, "choose another, or DEL the attachment that has it",
				"network %q: mac %s is taken by another interface on master %q", network, l.MAC, l.Parent.Name)
		}
	}
	return nil
}
