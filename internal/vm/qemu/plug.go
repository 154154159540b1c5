// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Plug gives a machine that runs another card. The taps belong to QEMU afterwards and may be closed here.
func (m *Machine) Plug(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.ports, "")
	switch {
	case d.HostPCI != "":
		return model.Faultf(model.CodeUnsupportedField, "give it when the machine is started",
			"interface %s: a device of the node cannot be plugged", d.Name)
	case d.PCIAddress != "":
		return model.Faultf(model.CodeUnsupportedField, "leave it out: it gets a free port",
			"interface %s: pciAddress %q cannot be chosen while the machine runs", d.Name, d.PCIAddress)
	case at < 0:
		return model.Faultf(model.CodeInvalidEnv, "take one away first, or start the machine anew",
			"interface %s: all %d ports for cards are taken", d.Name, len(m.ports))
	}
	kind, card, err := cardOf(d, len(taps))
	if err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	if err := m.connect(ctx, d, taps, vhost); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	args := map[string]any{"driver": kind, "bus": port(at)}
	for _, p := range card {
		args[p.key] = p.value
	}
	_, err = m.Command(ctx, "device_add", args)
	if err == nil && d.Down {
		err = m.SetLink(ctx, d, false)
	}
	if err != nil {
		whatever, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		_, _ = m.Command(whatever, "device_del", map[string]any{"id": ID(d)})
		_, _ = m.Command(whatever, "netdev_del", map[string]any{"id": hostEnd(d)})
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	m.ports[at] = d.Name
	return nil
}

const undoTime = 10 * time.Second

// connect makes the host's end of a card.
func (m *Machine) connect(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error {
	args := map[string]any{"type": "tap", "id": hostEnd(d), "vhost": len(vhost) > 0}
	for key, of := range map[string][]*os.File{"fd": taps, "vhostfd": vhost} {
		var names []string
		for i, f := range of {
			name := hostEnd(d) + "-" + key + strconv.Itoa(i)
			if _, err := m.command(ctx, "getfd", map[string]any{"fdname": name}, f); err != nil {
				return err
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			args[many(key, of)] = strings.Join(names, ":")
		}
	}
	_, err := m.Command(ctx, "netdev_add", args)
	return err
}

// Unplug takes a card away from a machine that runs, and waits until its guest has let go of it. One that is not there
// is no error.
func (m *Machine) Unplug(ctx context.Context, d model.VMDevice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.ports, d.Name)
	if at < 0 {
		if there, err := m.has(ctx, ID(d)); err != nil || !there {
			return err // it went by a call whose caller then failed
		}
		return model.Faultf(model.CodeUnsupportedField, "take its link down, or stop the machine",
			"interface %s: the machine's first card, and one with a pciAddress, cannot be taken away", d.Name)
	}
	ask := time.NewTicker(again) // a guest that has only begun to boot does not hear it
	defer ask.Stop()
	for first := true; ; first = false {
		there, err := m.has(ctx, ID(d))
		if err != nil {
			return fmt.Errorf("interface %s: %w", d.Name, err)
		}
		if !there {
			break
		}
		if first {
			if err := m.release(ctx, d); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return model.Faultf(model.CodeTryAgain, "try again when the guest has booted, or take the link down",
				"interface %s: the guest has not let go of it: %w", d.Name, ctx.Err())
		case <-m.Done():
			return errors.New("the machine has ended")
		case <-ask.C:
			if err := m.release(ctx, d); err != nil {
				return err
			}
		case <-time.After(unplugPause):
		}
	}
	if _, err := m.Command(ctx, "netdev_del", map[string]any{"id": hostEnd(d)}); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	m.ports[at] = ""
	return nil
}

// release asks the guest to let go of a card. It may do so meanwhile, or be about to.
func (m *Machine) release(ctx context.Context, d model.VMDevice) error {
	_, err := m.Command(ctx, "device_del", map[string]any{"id": ID(d)})
	if err == nil || strings.Contains(err.Error(), "already in the process of unplug") ||
		strings.Contains(err.Error(), "not found") {
		return nil
	}
	return fmt.Errorf("interface %s: %w", d.Name, err)
}

const unplugPause = 20 * time.Millisecond

// has tells whether a machine has a device.
func (m *Machine) has(ctx context.Context, id string) (bool, error) {
	b, err := m.Command(ctx, "qom-list", map[string]any{"path": "/machine/peripheral"})
	if err != nil {
		return false, err
	}
	var list []struct{ Name string }
	if err := json.Unmarshal(b, &list); err != nil {
		return false, fmt.Errorf("monitor: qom-list: %w", err)
	}
	return slices.ContainsFunc(list, func(o struct{ Name string }) bool { return o.Name == id }), nil
}
