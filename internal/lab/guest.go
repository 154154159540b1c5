// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/lab/connectivity"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

const (
	// guestPort is the port at which a guest replies if the manifest does not limit its ports.
	guestPort = 7007
	// guestTimeout bounds a command in a guest, probeTimeout one of its probes; the guest may be emulated.
	guestTimeout = time.Minute
	probeTimeout = 5 * time.Second
	// maxTargets is the number of targets that fit into one line of a console.
	maxTargets = 40
)

// guest probes from inside a VM, by its console.
type guest struct {
	console *qemu.Console
	ports   map[string]uint16
}

// Port returns the port at which the guest replies.
func (g *guest) Port(p connectivity.Proto) uint16 { return g.ports[strings.TrimRight(string(p), "46")] }

// Probe probes targets from inside the guest.
func (g *guest) Probe(ctx context.Context, targets []connectivity.Target) []error {
	out := make([]error, len(targets))
	for from := 0; from < len(targets); from += maxTargets {
		g.probeBatch(ctx, targets[from:min(from+maxTargets, len(targets))], out[from:])
	}
	return out
}

func (g *guest) probeBatch(ctx context.Context, targets []connectivity.Target, out []error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	line := "guest-tools try " + probeTimeout.String()
	for _, t := range targets {
		line += fmt.Sprintf(" %s,%s,%s", t.Proto, t.To, t.Name)
	}
	output, err := g.console.Run(ctx, line)
	for i := range targets {
		_, rest, ok := strings.Cut(output, fmt.Sprintf("try %d ", i))
		result, _, _ := strings.Cut(rest, "\n")
		switch {
		case err != nil:
			out[i] = err
		case !ok:
			out[i] = errors.New("no result from the guest")
		case result != "ok":
			out[i] = errors.New(result)
		}
	}
}

// isVMPod reports whether a pod is the pod of a VM, which has the pod's addresses.
func (st Status) isVMPod(p PodStatus) bool {
	for _, m := range st.VMs {
		if m.Pod == p.Namespace+"/"+p.Name {
			return true
		}
	}
	return p.Annotations[launch.DomainAnnotation] != ""
}

// addVMs adds the VMs to the endpoints. The caller must call done afterwards.
func (st Status) addVMs(ctx context.Context, endpoints *[]connectivity.Endpoint) (done func()) {
	var consoles []*qemu.Console
	for _, m := range st.VMs {
		e := connectivity.Endpoint{Name: endpointName(m), Addrs: vmAddrs(m)}
		g, err := openGuest(ctx, m, e.Name)
		if err != nil {
			e.Problem = err.Error()
		} else {
			e.Guest = g
			consoles = append(consoles, g.console)
		}
		*endpoints = append(*endpoints, e)
	}
	return func() {
		for _, c := range consoles {
			c.Close()
		}
	}
}

// endpointName returns the name of a VM's endpoint.
func endpointName(m launch.Status) string { return "vm/" + m.Key() }

// vmAddrs returns the VM's addresses in the cluster's network.
func vmAddrs(m launch.Status) (out []netip.Addr) {
	for _, i := range m.Interfaces {
		for _, text := range i.IPs {
			if a, err := netip.ParseAddr(text); err == nil && i.PodInterfaceName == "eth0" {
				out = append(out, a)
			}
		}
	}
	return out
}

// openGuest opens a VM's console and starts the guest's listener.
func openGuest(ctx context.Context, m launch.Status, name string) (*guest, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTimeout)
	defer cancel()
	if m.Phase != launch.Running {
		return nil, fmt.Errorf("VM %s is %s", m.Key(), m.Phase)
	}
	ports, err := guestPorts(m)
	if err != nil {
		return nil, err
	}
	c, err := qemu.OpenConsole(ctx, m.Dir)
	if err != nil {
		return nil, err
	}
	g := &guest{console: c, ports: ports}
	var lines []string
	for _, port := range []uint16{ports["tcp"], ports["udp"]} {
		if port != 0 {
			lines = append(
				lines,
				fmt.Sprintf("[ -e /run/reach%d ] || { touch /run/reach%d; guest-tools answer %d %s </dev/null >/dev/null 2>&1 & }",
					port, port, port, name),
				fmt.Sprintf("until guest-tools try 1s tcp4,127.0.0.1:%d,%s | grep -q ok; do usleep 100000; done", port, name))
		}
	}
	if _, err := c.Run(ctx, strings.Join(append(lines, "true"), "; ")); err != nil {
		c.Close()
		return nil, err
	}
	return g, nil
}

// guestPorts returns the ports at which a guest replies, by protocol. If the manifest lists ports, only those reach the
// guest.
func guestPorts(m launch.Status) (map[string]uint16, error) {
	data, err := os.ReadFile(m.Dir + ".yaml")
	if err != nil {
		return nil, err
	}
	l, err := manifest.ReadLaunch(data, manifest.Options{})
	if err != nil {
		return nil, err
	}
	out := map[string]uint16{"tcp": guestPort, "udp": guestPort}
	for _, nic := range l.VM.Interfaces {
		if !nic.Network.Primary || len(nic.Ports) == 0 {
			continue
		}
		out = map[string]uint16{}
		for _, p := range nic.Ports {
			if out[p.Protocol] == 0 {
				out[p.Protocol] = p.First
			}
		}
	}
	return out, nil
}
