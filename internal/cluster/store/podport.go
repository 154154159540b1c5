// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/weft-net/weft/internal/model"

// podContainer is the decoded part of a container.
type podContainer struct {
	RestartPolicy string    `json:"restartPolicy,omitempty"`
	Ports         []podPort `json:"ports,omitempty"`
}

type podPort struct {
	Name          string `json:"name,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
	ContainerPort int    `json:"containerPort,omitempty"`
}

// namedPorts returns the named ports, for policies. Sidecars, which are init containers with restartPolicy Always, are
// included.
func namedPorts(containers, initial []podContainer) []model.PodPort {
	var out []model.PodPort
	add := func(c podContainer) {
		for _, p := range c.Ports {
			if p.Name == "" || p.ContainerPort < 1 || p.ContainerPort > 65535 {
				continue
			}
			one := model.PodPort{Name: p.Name, Protocol: model.Protocol(p.Protocol), Number: uint16(p.ContainerPort)}
			if one.Protocol == "" {
				one.Protocol = model.TCP
			}
			out = append(out, one)
		}
	}
	for _, c := range containers {
		add(c)
	}
	for _, c := range initial {
		if c.RestartPolicy == "Always" {
			add(c)
		}
	}
	return out
}
