// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// PodOnNode is a running pod. Image is that of its first container.
type PodOnNode struct{ Namespace, Name, Node, Image string }

// RunningPods returns the running pods of all namespaces that have a label ("app.kubernetes.io/name=weft").
func (s *Store) RunningPods(ctx context.Context, label string) ([]PodOnNode, error) {
	raw, err := do(ctx, requestTimeout, s.clients.work.Get().AbsPath("/api/v1/pods").Param("labelSelector", label))
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Namespace, Name, DeletionTimestamp string }
			Spec     struct {
				NodeName   string
				Containers []struct{ Image string }
			}
			Status struct{ Phase string }
		}
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("list of pods: %w", err)
	}
	var out []PodOnNode
	for _, p := range list.Items {
		if p.Status.Phase == "Running" && p.Metadata.DeletionTimestamp == "" {
			one := PodOnNode{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Node: p.Spec.NodeName}
			if len(p.Spec.Containers) > 0 {
				one.Image = p.Spec.Containers[0].Image
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// ExecURL returns the URL that executes a command in a container, with its standard streams.
func (s *Store) ExecURL(namespace, pod, container string, command []string) *url.URL {
	r := s.clients.work.Post().AbsPath("/api/v1/namespaces", namespace, "pods", pod, "exec").
		Param("container", container).Param("stdin", "true").Param("stdout", "true").Param("stderr", "true")
	for _, word := range command {
		r = r.Param("command", word)
	}
	return r.URL()
}
