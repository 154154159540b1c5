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

// Plug hot-plugs a network device. The caller may close the taps afterwards.
func (m *VM) Plug(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.ports, "")
	switch {
	case d.HostPCI != "":
		return model.Errorf(model.CodeUnsupportedField, "add it before the VM is started",
			"interface %s: a device of the node cannot be hot-plugged", d.Name)
	case d.PCIAddress != "":
		return model.Errorf(model.CodeUnsupportedField, "remove it: the device gets a free port",
			"interface %s: pciAddress %q is not supported for a running VM", d.Name, d.PCIAddress)
	case at < 0:
		return model.Errorf(model.CodeInvalidEnv, "unplug one first, or restart the VM",
			"interface %s: all %d hot-plug ports are in use", d.Name, len(m.ports))
	}
	kind, props, err := nicDevice(d, len(taps))
	if err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	if err := m.addNetdev(ctx, d, taps, vhost); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	args := map[string]any{"driver": kind, "bus": port(at)}
	for _, p := range props {
		args[p.key] = p.value
	}
	_, err = m.Command(ctx, "device_add", args)
	if err == nil && d.Down {
		err = m.SetLink(ctx, d, false)
	}
	if err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		_, _ = m.Command(cleanup, "device_del", map[string]any{"id": DeviceID(d)})
		_, _ = m.Command(cleanup, "netdev_del", map[string]any{"id": netdevID(d)})
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	m.ports[at] = d.Name
	return nil
}

// cleanupTime is the timeout for cleaning up after an error.
const cleanupTime = 10 * time.Second

// addNetdev creates the backend of a network device.
func (m *VM) addNetdev(ctx context.Context, d model.VMDevice, taps, vhost []*os.File) error {
	args := map[string]any{"type": "tap", "id": netdevID(d), "vhost": len(vhost) > 0}
	for key, of := range map[string][]*os.File{"fd": taps, "vhostfd": vhost} {
		var names []string
		for i, f := range of {
			name := netdevID(d) + "-" + key + strconv.Itoa(i)
			if _, err := m.command(ctx, "getfd", map[string]any{"fdname": name}, f); err != nil {
				return err
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			args[plural(key, of)] = strings.Join(names, ":")
		}
	}
	_, err := m.Command(ctx, "netdev_add", args)
	return err
}

// Unplug unplugs a network device, and waits until the guest has released it. A missing device is no error.
func (m *VM) Unplug(ctx context.Context, d model.VMDevice) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.Index(m.ports, d.Name)
	if at < 0 {
		if there, err := m.hasDevice(ctx, DeviceID(d)); err != nil || !there {
			return err // an earlier call unplugged it
		}
		return model.Errorf(model.CodeUnsupportedField, "set its link down, or stop the VM",
			"interface %s: the VM's first interface, and one with a pciAddress, cannot be unplugged", d.Name)
	}
	ask := time.NewTicker(retryEvery) // a guest that is booting ignores the request
	defer ask.Stop()
	for first := true; ; first = false {
		there, err := m.hasDevice(ctx, DeviceID(d))
		if err != nil {
			return fmt.Errorf("interface %s: %w", d.Name, err)
		}
		if !there {
			break
		}
		if first {
			if err := m.requestUnplug(ctx, d); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return model.Errorf(model.CodeTryAgain, "try again when the guest has booted, or set the link down",
				"interface %s: the guest has not released it: %w", d.Name, ctx.Err())
		case <-m.Done():
			return errors.New("the VM has ended")
		case <-ask.C:
			if err := m.requestUnplug(ctx, d); err != nil {
				return err
			}
		case <-time.After(unplugPoll):
		}
	}
	if _, err := m.Command(ctx, "netdev_del", map[string]any{"id": netdevID(d)}); err != nil {
		return fmt.Errorf("interface %s: %w", d.Name, err)
	}
	m.ports[at] = ""
	return nil
}

// requestUnplug asks the guest to release a device. The device may be gone, or its release may be in progress.
func (m *VM) requestUnplug(ctx context.Context, d model.VMDevice) error {
	_, err := m.Command(ctx, "device_del", map[string]any{"id": DeviceID(d)})
	if err == nil || strings.Contains(err.Error(), "already in the process of unplug") ||
		strings.Contains(err.Error(), "not found") {
		return nil
	}
	return fmt.Errorf("interface %s: %w", d.Name, err)
}

const unplugPoll = 20 * time.Millisecond

// hasDevice reports whether the VM has a device.
func (m *VM) hasDevice(ctx context.Context, id string) (bool, error) {
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
