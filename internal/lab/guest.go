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

	"github.com/weft-net/weft/internal/lab/reach"
	"github.com/weft-net/weft/internal/vm/launch"
	"github.com/weft-net/weft/internal/vm/manifest"
	"github.com/weft-net/weft/internal/vm/qemu"
)

const (
	// guestPort is where a guest answers to which all ports lead.
	guestPort = 7007
	// guestTime bounds what a guest is asked to do, guestTry one try of it: it may be emulated.
	guestTime = time.Minute
	guestTry  = 5 * time.Second
	// together is how many targets fit into one line of a console.
	together = 40
)

// guest sends packets from inside a machine.
type guest struct {
	console *qemu.Console
	ports   map[string]uint16
}

// Port is where it answers.
func (g *guest) Port(p reach.Proto) uint16 { return g.ports[strings.TrimRight(string(p), "46")] }

// Try has the guest try others.
func (g *guest) Try(ctx context.Context, targets []reach.Target) []error {
	out := make([]error, len(targets))
	for from := 0; from < len(targets); from += together {
		g.some(ctx, targets[from:min(from+together, len(targets))], out[from:])
	}
	return out
}

func (g *guest) some(ctx context.Context, targets []reach.Target, out []error) {
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	line := "guest-tools try " + guestTry.String()
	for _, t := range targets {
		line += fmt.Sprintf(" %s,%s,%s", t.Proto, t.To, t.Name)
	}
	said, err := g.console.Run(ctx, line)
	for i := range targets {
		_, rest, ok := strings.Cut(said, fmt.Sprintf("try %d ", i))
		answer, _, _ := strings.Cut(rest, "\n")
		switch {
		case err != nil:
			out[i] = err
		case !ok:
			out[i] = errors.New("the guest says nothing")
		case answer != "ok":
			out[i] = errors.New(answer)
		}
	}
}

// around tells whether a pod is the one around a machine: its network is the guest's.
func (st Status) around(p PodStatus) bool {
	for _, m := range st.Machines {
		if m.Pod == p.Namespace+"/"+p.Name {
			return true
		}
	}
	return p.Annotations[launch.DomainNote] != ""
}

// guests adds the machines to those that are reached.
func (st Status) guests(ctx context.Context, endpoints *[]reach.Endpoint) (done func()) {
	var consoles []*qemu.Console
	for _, m := range st.Machines {
		e := reach.Endpoint{Name: guestName(m), Addrs: guestAddrs(m)}
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

// guestName is what a machine is called among those who are reached.
func guestName(m launch.Status) string { return "vm/" + m.Key() }

// guestAddrs are those by which others reach a machine.
func guestAddrs(m launch.Status) (out []netip.Addr) {
	for _, i := range m.Interfaces {
		for _, text := range i.IPs {
			if a, err := netip.ParseAddr(text); err == nil && i.PodInterfaceName == "eth0" {
				out = append(out, a)
			}
		}
	}
	return out
}

// openGuest has a guest answer those who ask it.
func openGuest(ctx context.Context, m launch.Status, name string) (*guest, error) {
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	if m.Phase != launch.Running {
		return nil, fmt.Errorf("machine %s is %s", m.Key(), m.Phase)
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

// guestPorts are the ports by which a guest can be asked: where the manifest lists ports, only those lead to it.
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
