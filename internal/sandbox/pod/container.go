// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/weft-net/weft/internal/sandbox/container"
)

// Container is a container of a pod and its kind.
type Container struct {
	*v1.Container
	Kind container.Kind
}

// Containers returns the containers of a pod, in the order in which they start.
func Containers(p *v1.Pod) []Container {
	var out []Container
	kinds := []container.Kind{}
	for range p.Spec.EphemeralContainers {
		kinds = append(kinds, container.Ephemeral)
	}
	for range p.Spec.InitContainers {
		kinds = append(kinds, container.Init)
	}
	for range p.Spec.Containers {
		kinds = append(kinds, container.Regular)
	}
	for i, c := range containers(p) {
		out = append(out, Container{c, kinds[i]})
	}
	return out
}

// Spec returns the specification of a container; ips are the pod's addresses, files are mounted over the node's.
func Spec(p *v1.Pod, c Container, node Node, attempt int, ips []string, files []container.File) container.Spec {
	env := environment(p, c, node, ips)
	values := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		values[k] = v
	}
	argv := make([]string, 0, len(c.Command)+len(c.Args))
	for _, a := range append(append([]string{}, c.Command...), c.Args...) {
		argv = append(argv, expand(a, values))
	}
	return container.Spec{
		Name: c.Name, Kind: c.Kind, Attempt: attempt, Image: c.Image, Argv: argv, Env: env, Dir: c.WorkingDir,
		Log:   filepath.Join(LogDir(p, node.LogDir), c.Name, fmt.Sprintf("%d.log", attempt)),
		Files: files,
	}
}

// environment returns the container's environment variables, which may refer to earlier ones.
func environment(p *v1.Pod, c Container, node Node, ips []string) []string {
	out := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "HOSTNAME=" + Hostname(p),
	}
	values := map[string]string{}
	for _, e := range c.Env {
		v := expand(e.Value, values)
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			v = field(p, node, ips, e.ValueFrom.FieldRef.FieldPath)
		}
		values[e.Name] = v
		out = append(out, e.Name+"="+v)
	}
	return lastWins(out)
}

func lastWins(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if i, ok := at[k]; ok {
			out[i] = kv
			continue
		}
		at[k] = len(out)
		out = append(out, kv)
	}
	return out
}

// field returns the value of a field of the downward API.
func field(p *v1.Pod, node Node, ips []string, path string) string {
	first := ""
	if len(ips) > 0 {
		first = ips[0]
	}
	switch path {
	case "metadata.name":
		return p.Name
	case "metadata.namespace":
		return p.Namespace
	case "metadata.uid":
		return string(p.UID)
	case "spec.nodeName":
		if p.Spec.NodeName != "" {
			return p.Spec.NodeName
		}
		return node.Name
	case "spec.serviceAccountName":
		return p.Spec.ServiceAccountName
	case "status.podIP":
		return first
	case "status.podIPs":
		return strings.Join(ips, ",")
	}
	for prefix, from := range map[string]map[string]string{
		"metadata.labels['": p.Labels, "metadata.annotations['": p.Annotations,
	} {
		if key, ok := strings.CutPrefix(path, prefix); ok {
			return from[strings.TrimSuffix(key, "']")]
		}
	}
	return ""
}

// expand replaces $(NAME) by the variable's value. $$(NAME) is an escaped $(NAME); unknown names are not replaced.
func expand(s string, values map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(s[i:], ')')
			name := ""
			if end > 0 {
				name = s[i+2 : i+end]
			}
			if v, ok := values[name]; ok && end > 0 {
				b.WriteString(v)
				i += end
				continue
			}
			b.WriteByte('$')
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}
