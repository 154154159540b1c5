// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/sandbox/process"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// Phase is the lifecycle phase of a VM.
type Phase string

// The phases.
const (
	Starting Phase = "Starting"
	Running  Phase = "Running"
	Stopping Phase = "Stopping"
	// Dead: the VM's process was killed.
	Dead Phase = "Dead"
)

const statusName = "status.json"

// Status is the status of a running VM. The keys of its JSON form are stable.
type Status struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	Phase     Phase  `json:"phase"`
	Node      string `json:"nodeName,omitempty"`
	// Pod is the name of its pod, Netns the pod's network namespace.
	Pod        string      `json:"pod"`
	Netns      string      `json:"netns"`
	Interfaces []Interface `json:"interfaces"`
	// Runner is the process that runs launch.
	Runner process.ID `json:"runner"`
	Dir    string     `json:"dir"`
	// Runtime is the state directory of the pod's sandbox runtime, if the runner created the pod.
	Runtime string `json:"runtime,omitempty"`
	// Agent is the socket of the agent that applied the network, Records the directory of records if there was no agent.
	Agent   string `json:"agentSocket,omitempty"`
	Records string `json:"records,omitempty"`
}

// Key returns the VM's key.
func (s Status) Key() string { return s.Namespace + "/" + s.Name }

// Interface is an interface of the guest, as KubeVirt reports it in status.interfaces.
type Interface struct {
	IP               string   `json:"ipAddress,omitempty"`
	MAC              string   `json:"mac,omitempty"`
	Name             string   `json:"name,omitempty"`
	IPs              []string `json:"ipAddresses,omitempty"`
	PodInterfaceName string   `json:"podInterfaceName,omitempty"`
	InfoSource       string   `json:"infoSource,omitempty"`
	QueueCount       int32    `json:"queueCount,omitempty"`
	LinkState        string   `json:"linkState,omitempty"`
}

// interfaces returns the status of a VM's interfaces, with the addresses at which they are reachable. A guest with the
// pod's addresses but without DHCPv6 has no IPv6 address. The interface of the pod's network is the first, regardless
// of the manifest: lists of VMs show its address.
func interfaces(r phase1.Record, addresses map[string][]netip.Addr) []Interface {
	out := []Interface{}
	for _, n := range r.Networks {
		i := Interface{
			MAC: n.Device.MAC, Name: n.Interface.Name, PodInterfaceName: n.PodLink, InfoSource: "domain",
			QueueCount: int32(max(n.Device.Queues, 1)), LinkState: "up",
		}
		if !n.Interface.Network.Primary {
			i.InfoSource = "domain, multus-status"
		}
		if n.Device.Down {
			i.LinkState = "down"
		}
		for _, a := range addresses[n.Interface.Name] {
			if a.Is6() && n.Interface.Binding != model.VMMasquerade && (n.Guest == nil || n.Guest.DHCP6 == nil) {
				continue
			}
			i.IPs = append(i.IPs, a.String())
		}
		if len(i.IPs) > 0 {
			i.IP = i.IPs[0]
		}
		if n.Interface.Network.Pod {
			out = slices.Insert(out, 0, i)
		} else {
			out = append(out, i)
		}
	}
	return out
}

// linkAddrs returns the reachable addresses of a link, IPv4 first.
func linkAddrs(ns *netns.NS, name string) (out []netip.Addr, err error) {
	err = ns.Do(func() error {
		link, err := net.InterfaceByName(name)
		if err != nil {
			return err
		}
		all, err := link.Addrs()
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				out = append(out, p.Addr())
			}
		}
		return err
	})
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return out, err
}

// writePhase writes the status with a phase.
func (l *launch) writePhase(p Phase) error {
	l.status.Phase, l.status.Dir = p, l.Dir
	return WriteStatus(l.status)
}

// WriteStatus writes the status of a VM to its directory.
func WriteStatus(s Status) error {
	if s.Interfaces == nil {
		s.Interfaces = []Interface{}
	}
	err := os.MkdirAll(s.Dir, 0o700)
	if err == nil {
		err = process.WriteJSON(filepath.Join(s.Dir, statusName), s)
	}
	if err != nil {
		return model.Errorf(model.CodeIO, "run as root, or choose another directory with --dir", "VM %s: %w",
			s.Key(), err)
	}
	return nil
}

// RemoveDir removes a VM's directory. It removes the status first, so that no other process reads a part of it.
func RemoveDir(dir string) error {
	err := os.Remove(filepath.Join(dir, statusName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("VM in %s: %w", dir, err)
	}
	return nil
}

// VMDir returns the directory of a VM below the directory of all.
func VMDir(dir, key string) string {
	return filepath.Join(dir, strings.ReplaceAll(key, "/", ","))
}

// Read reads the status in a VM's directory.
func Read(dir string) (s Status, found bool, err error) {
	err = process.ReadJSON(filepath.Join(dir, statusName), &s)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("VM in %s: %w", dir, err)
	}
	if !s.Runner.Alive() {
		s.Phase = Dead
	}
	return s, true, nil
}

// ReadAll reads the status of all VMs below a directory.
func ReadAll(dir string) (out []Status, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		s, found, e := Read(filepath.Join(dir, e.Name()))
		err = errors.Join(err, e)
		if found {
			out = append(out, s)
		}
	}
	return out, err
}
