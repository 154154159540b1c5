// SPDX-License-Identifier: Apache-2.0

// Package chart is weft's Helm chart, as a program has it: the templates from which all manifests are rendered.
package chart

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	v2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

//go:embed Chart.yaml values.yaml values.schema.json templates/_helpers.tpl templates/*.yaml files/*
var files embed.FS

// Name is the name of the chart, and of its release.
const Name = "weft"

// Namespace is the namespace of the manifests that are applied without Helm.
const Namespace = "kube-system"

// Load returns the chart.
func Load() (*v2.Chart, error) {
	var all []*archive.BufferedFile
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(path)
		all = append(all, &archive.BufferedFile{Name: path, Data: b})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	c, err := loader.LoadFiles(all)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return c, nil
}

// Manifest is what a template was rendered to.
type Manifest struct {
	// Name is that of the template, without its ending; Text are YAML documents, empty if the values leave it out.
	Name, Text string
}

// templates are the templates in the order in which their objects are applied.
func templates() []string {
	return []string{"rbac", "admission", "tiers", "config", "daemonset", "tunnels", "bgp", "controller", "clean", "weft-direct", "monitoring"}
}

// Render returns the manifests for values that differ from the defaults, for a namespace. The error is that of the schema
// if a value is wrong, with its path.
func Render(values map[string]any, namespace string) ([]Manifest, error) {
	c, err := Load()
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: Name, Namespace: namespace, IsInstall: true}, nil)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	rendered, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	var out []Manifest
	for _, name := range templates() {
		text := strings.TrimSpace(rendered[Name+"/templates/"+name+".yaml"])
		if text != "" {
			text += "\n"
		}
		out = append(out, Manifest{name, text})
	}
	return out, nil
}
