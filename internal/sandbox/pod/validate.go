// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"math"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

var (
	label     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	uidForm   = regexp.MustCompile(`^[a-zA-Z0-9][-a-zA-Z0-9.]{0,62}$`)
)

// Validate refuses pods that cannot be run. The error names field and value.
func Validate(p *v1.Pod) error {
	switch {
	case p.Name == "":
		return bad("set a name", "metadata.name is missing")
	case len(p.Name) > 253 || !subdomain.MatchString(p.Name):
		return bad("use lower case letters, digits, - and .", "metadata.name %q is not a valid name", clip(p.Name))
	case !label.MatchString(p.Namespace):
		return bad("use lower case letters, digits and -", "metadata.namespace %q is not a valid name", clip(p.Namespace))
	case !uidForm.MatchString(string(p.UID)):
		return bad("leave it out", "metadata.uid %q is not a valid uid", clip(string(p.UID)))
	case len(p.Spec.Containers) == 0:
		return bad("list at least one container with name and command", "spec.containers is empty")
	}
	if h := p.Spec.Hostname; h != "" && !label.MatchString(h) {
		return bad("use lower case letters, digits and -", "spec.hostname %q is not a valid name", clip(h))
	}
	switch p.Spec.RestartPolicy {
	case v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever:
	default:
		return bad("use Always, OnFailure or Never", "spec.restartPolicy %q is unknown", p.Spec.RestartPolicy)
	}
	const maxGrace = int64(math.MaxInt64 / time.Second)
	if g := *p.Spec.TerminationGracePeriodSeconds; g < 0 {
		return bad("use 0 or more", "spec.terminationGracePeriodSeconds %d is negative", g)
	} else if g > maxGrace {
		return bad("use 30", "spec.terminationGracePeriodSeconds %d is above %d", g, maxGrace)
	}
	if p.Spec.HostPID && p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace {
		return bad("set one of them", "spec.hostPID and spec.shareProcessNamespace contradict each other")
	}
	if err := validateDNS(p); err != nil {
		return err
	}
	if err := validateSysctls(p); err != nil {
		return err
	}
	return validateContainers(p)
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:77] + "..."
	}
	return s
}

func validateDNS(p *v1.Pod) error {
	switch p.Spec.DNSPolicy {
	case v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault:
	case v1.DNSNone:
		if p.Spec.DNSConfig == nil || len(p.Spec.DNSConfig.Nameservers) == 0 {
			return bad("list a nameserver there", "spec.dnsPolicy None without spec.dnsConfig.nameservers")
		}
	default:
		return bad("use ClusterFirst, ClusterFirstWithHostNet, Default or None", "spec.dnsPolicy %q is unknown",
			p.Spec.DNSPolicy)
	}
	if c := p.Spec.DNSConfig; c != nil {
		for i, s := range c.Nameservers {
			if _, err := netip.ParseAddr(s); err != nil {
				return bad("write an address", "spec.dnsConfig.nameservers[%d] %q is not an address", i, s)
			}
		}
	}
	for i, a := range p.Spec.HostAliases {
		if _, err := netip.ParseAddr(a.IP); err != nil {
			return bad("write an address", "spec.hostAliases[%d].ip %q is not an address", i, a.IP)
		}
	}
	return nil
}

func validateSysctls(p *v1.Pod) error {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	for i, s := range p.Spec.SecurityContext.Sysctls {
		field := fmt.Sprintf("spec.securityContext.sysctls[%d]", i)
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch {
		case !strings.HasPrefix(name, "net.") || strings.Contains(name, ".."):
			return bad("use net.* sysctls only", "%s.name %q is not supported", field, s.Name)
		case p.Spec.HostNetwork:
			return bad("remove one of them", "%s.name %q would change the node, because spec.hostNetwork is set", field, s.Name)
		}
	}
	return nil
}

func validateContainers(p *v1.Pod) error {
	seen := map[string]bool{}
	type port struct {
		ip    string
		port  int32
		proto v1.Protocol
	}
	taken := map[port]string{}
	for _, c := range containers(p) {
		field := fmt.Sprintf("container %q", clip(c.Name))
		switch {
		case !label.MatchString(c.Name):
			return bad("use lower case letters, digits and -", "%s: name is missing or not valid", field)
		case seen[c.Name]:
			return bad("use unique names", "%s: duplicate name", field)
		case len(c.Command) == 0 && len(c.Args) == 0:
			return bad("set command: images are not pulled", "%s: command is missing", field)
		case len(c.Command) == 0:
			return bad("set command: images are not pulled, so there is no entrypoint", "%s: args without command", field)
		case c.WorkingDir != "" && !filepath.IsAbs(c.WorkingDir):
			return bad("write an absolute path", "%s: workingDir %q is relative", field, c.WorkingDir)
		}
		seen[c.Name] = true
		for i, pt := range c.Ports {
			at := fmt.Sprintf("%s: ports[%d]", field, i)
			if err := validatePort(pt, at, p.Spec.HostNetwork); err != nil {
				return err
			}
			if pt.HostPort == 0 {
				continue
			}
			key := port{pt.HostIP, pt.HostPort, pt.Protocol}
			if by, ok := taken[key]; ok {
				return bad("choose another", "%s.hostPort %d/%s is used by container %q", at, pt.HostPort, pt.Protocol, by)
			}
			taken[key] = c.Name
		}
		if err := validateEnv(c, field); err != nil {
			return err
		}
	}
	return nil
}

func validatePort(pt v1.ContainerPort, at string, hostNetwork bool) error {
	switch {
	case pt.ContainerPort < 1 || pt.ContainerPort > 65535:
		return bad("use 1 to 65535", "%s.containerPort %d is out of range", at, pt.ContainerPort)
	case pt.HostPort < 0 || pt.HostPort > 65535:
		return bad("use 1 to 65535", "%s.hostPort %d is out of range", at, pt.HostPort)
	case hostNetwork && pt.HostPort != pt.ContainerPort:
		return bad("leave hostPort out", "%s.hostPort %d differs from containerPort %d, with spec.hostNetwork", at,
			pt.HostPort, pt.ContainerPort)
	}
	switch pt.Protocol {
	case v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP:
	default:
		return bad("use TCP, UDP or SCTP", "%s.protocol %q is unknown", at, pt.Protocol)
	}
	if pt.HostIP != "" {
		if _, err := netip.ParseAddr(pt.HostIP); err != nil {
			return bad("write an address", "%s.hostIP %q is not an address", at, pt.HostIP)
		}
	}
	return nil
}

func validateEnv(c *v1.Container, field string) error {
	for i, e := range c.Env {
		at := fmt.Sprintf("%s: env[%d]", field, i)
		switch {
		case e.Name == "" || strings.ContainsAny(e.Name, "=\x00"):
			return bad("", "%s.name %q is not valid", at, clip(e.Name))
		case e.ValueFrom != nil && e.ValueFrom.FieldRef == nil:
			return bad("write a value, or use fieldRef", "%s %s: valueFrom of this kind is not supported", at, e.Name)
		}
	}
	if len(c.EnvFrom) > 0 {
		return bad("write the values under env", "%s: envFrom is not supported", field)
	}
	return nil
}
