// Renders the templates of a Helm chart with the engine that Helm uses: Go's text/template and sprig. For machines
// without Helm; reads {"folder", "values", "release"} from standard input, and writes {file: text}.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run tests/packages/render
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"github.com/ghodss/yaml"
)

type job struct {
	Folder  string
	Values  map[string]interface{}
	Release map[string]interface{}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	var asked job
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	about, err := os.ReadFile(filepath.Join(asked.Folder, "Chart.yaml"))
	check(err)
	var chart map[string]interface{}
	check(yaml.Unmarshal(about, &chart))
	// Templates see the fields with capitals.
	named := map[string]interface{}{}
	for key, value := range chart {
		named[strings.ToUpper(key[:1])+key[1:]] = value
	}

	root := template.New("").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := root.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	root.Funcs(functions)

	files, err := filepath.Glob(filepath.Join(asked.Folder, "templates", "*"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		_, err = root.New(filepath.Base(file)).Parse(string(text))
		check(err)
	}
	data := map[string]interface{}{"Values": asked.Values, "Release": asked.Release, "Chart": named}
	rendered := map[string]string{}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text strings.Builder
		check(root.ExecuteTemplate(&text, name, data))
		rendered[name] = text.String()
	}
	check(json.NewEncoder(os.Stdout).Encode(rendered))
}
