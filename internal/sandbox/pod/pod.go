// SPDX-License-Identifier: Apache-2.0

// Package pod reads v1.Pod manifests and converts them to the configuration of sandboxes and containers.
package pod

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// Parse reads the pods of a manifest: YAML or JSON, with several documents or a v1.List. It skips objects of other kinds
// and returns their names in others. It sets defaults and validates each pod.
func Parse(b []byte, source string) (pods []*v1.Pod, others []string, err error) {
	return parse(b, source, false)
}

func parse(b []byte, source string, inList bool) (pods []*v1.Pod, others []string, err error) {
	for i, doc := range documents(b) {
		where := fmt.Sprintf("%s: document %d", source, i+1)
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Items      []any  `json:"items"`
		}
		if err := yaml.Unmarshal(doc, &head); err != nil {
			return nil, nil, bad("", "%s: %w", where, err)
		}
		switch {
		case head.Kind == "" || head.APIVersion == "":
			return nil, nil, bad(`begin it with "apiVersion: v1" and "kind: Pod"`, "%s: kind or apiVersion is missing", where)
		case (head.Kind == "List" || head.Kind == "PodList") && inList:
			return nil, nil, bad("list the pods in one list", "%s: nested lists are not supported", where)
		case head.Kind == "List" || head.Kind == "PodList":
			for _, item := range head.Items {
				inner, err := yaml.Marshal(item)
				if err != nil {
					return nil, nil, bad("", "%s: %w", where, err)
				}
				more, rest, err := parse(inner, where, true)
				if err != nil {
					return nil, nil, err
				}
				pods, others = append(pods, more...), append(others, rest...)
			}
		case head.Kind != "Pod" || head.APIVersion != "v1":
			others = append(others, head.APIVersion+" "+head.Kind)
		default:
			p, err := parseOne(doc, where)
			if err != nil {
				return nil, nil, err
			}
			pods = append(pods, p)
		}
	}
	return pods, others, nil
}

func bad(hint, format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, hint, format, args...)
}

// documents splits a manifest at its --- lines and skips empty documents.
func documents(b []byte) [][]byte {
	var out [][]byte
	var doc bytes.Buffer
	flush := func() {
		for line := range bytes.Lines(doc.Bytes()) {
			line = bytes.TrimSpace(line)
			if len(line) > 0 && line[0] != '#' {
				out = append(out, bytes.Clone(doc.Bytes()))
				break
			}
		}
		doc.Reset()
	}
	for line := range bytes.Lines(b) {
		if t := bytes.TrimRight(line, " \t\r\n"); bytes.Equal(t, []byte("---")) || bytes.HasPrefix(t, []byte("--- ")) {
			flush()
			continue
		}
		doc.Write(line)
	}
	flush()
	return out
}

func parseOne(doc []byte, where string) (*v1.Pod, error) {
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(doc, p); err != nil {
		return nil, bad("compare with `kubectl explain pod`", "%s: %w", where, err)
	}
	Default(p)
	if err := Validate(p); err != nil {
		var f *model.Error
		if errors.As(err, &f) {
			return nil, bad(f.Hint, "%s: pod %s: %s", where, Name(p), f.Msg)
		}
		return nil, err
	}
	return p, nil
}

// Read is Parse of a stream, which it limits to 4 MiB.
func Read(r io.Reader, source string) ([]*v1.Pod, []string, error) {
	const limit = 4 << 20
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", source, err)
	}
	if len(b) > limit {
		return nil, nil, bad("split it", "manifest %s: longer than %d bytes", source, limit)
	}
	return Parse(b, source)
}

// Name returns "namespace/name".
func Name(p *v1.Pod) string { return p.Namespace + "/" + p.Name }

// Default sets defaults, as the API server does. A pod without UID gets the one that weft derives from its name
// everywhere.
func Default(p *v1.Pod) {
	p.APIVersion, p.Kind = "v1", "Pod"
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	if p.UID == "" {
		p.UID = DerivedUID(p)
	}
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	}
	if p.Spec.DNSPolicy == "" {
		p.Spec.DNSPolicy = v1.DNSClusterFirst
	}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		grace := int64(v1.DefaultTerminationGracePeriodSeconds)
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	for _, c := range containers(p) {
		for i := range c.Ports {
			if c.Ports[i].Protocol == "" {
				c.Ports[i].Protocol = v1.ProtocolTCP
			}
			if p.Spec.HostNetwork && c.Ports[i].HostPort == 0 {
				c.Ports[i].HostPort = c.Ports[i].ContainerPort
			}
		}
	}
}

// containers returns pointers to all containers of a pod, in the order in which they start.
func containers(p *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range p.Spec.EphemeralContainers {
		out = append(out, (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for i := range p.Spec.InitContainers {
		out = append(out, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	return out
}

// Ignored lists the fields of the manifest that are accepted but ignored, for messages.
func Ignored(p *v1.Pod) []string {
	var out []string
	var images []string
	add := func(ignored bool, field string) {
		if ignored && !slices.Contains(out, field) {
			out = append(out, field)
		}
	}
	for _, c := range containers(p) {
		if c.Image != "" && !slices.Contains(images, c.Image) {
			images = append(images, c.Image)
		}
		add(len(c.VolumeMounts) > 0, "volumeMounts")
		add(len(c.Resources.Limits)+len(c.Resources.Requests) > 0, "resources")
		add(c.LivenessProbe != nil || c.ReadinessProbe != nil || c.StartupProbe != nil, "probes")
		add(c.Lifecycle != nil, "lifecycle")
		add(c.SecurityContext != nil, "securityContext of containers")
	}
	if len(images) > 0 {
		out = append([]string{
			"image (" + strings.Join(images, ", ") + "): recorded, not pulled; the root filesystem is the node's",
		}, out...)
	}
	return out
}

// DerivedUID returns the UID of a pod whose manifest has none.
func DerivedUID(p *v1.Pod) types.UID {
	return types.UID(store.DeriveUID(store.PodKey(p.Namespace, p.Name)))
}
