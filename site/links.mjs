// Checks the links of a built site: each one within it leads to a page or file, and to an anchor of it.
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

const root = resolve(process.argv[2])
const pages = readdirSync(root, { recursive: true }).filter((f) => f.endsWith('.html')).map((f) => join(root, f))
const read = new Map()
const html = (page) => {
  if (!read.has(page)) read.set(page, readFileSync(page, 'utf8'))
  return read.get(page)
}
const text = (s) => decodeURIComponent(s.replaceAll('&amp;', '&').replaceAll('&#39;', "'").replaceAll('&quot;', '"'))
const anchors = new Map()
const anchorsOf = (page) => {
  if (!anchors.has(page)) anchors.set(page, new Set([...html(page).matchAll(/\sid="([^"]+)"/g)].map((m) => text(m[1]))))
  return anchors.get(page)
}
// fileOf is what a server shows for a path.
const fileOf = (path) => [path, path + '.html', join(path, 'index.html')].find((f) => existsSync(f) && statSync(f).isFile())

let links = 0
const dead = []
for (const page of pages) {
  for (const [, href] of html(page).matchAll(/\s(?:href|src)="([^"]*)"/g)) {
    if (/^([a-z]+:|\/\/)/.test(href)) continue
    links++
    const [path, anchor] = text(href).split('#')
    const file = path === '' ? page : fileOf(path.startsWith('/') ? join(root, path) : resolve(dirname(page), path))
    if (!file || (anchor && file.endsWith('.html') && !anchorsOf(file).has(anchor))) dead.push(`${relative(root, page)}: ${href}`)
  }
}
for (const link of [...new Set(dead)]) console.error(`site: dead link in ${link}`)
console.log(`site: ${links} links of ${pages.length} pages checked`)
if (pages.length === 0 || dead.length > 0) process.exit(1)
